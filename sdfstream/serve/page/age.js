// How old the data on the page is, always in sight; and whether news still arrives.
import { html, useEffect, useState } from './lib.js';
import { ageMs, freshness, isPast, shownHead, stale } from './freshness.js';
import { duration, time } from './format.js';
import { route } from './route.js';
import { useStore } from './store.js';

export function Age() {
  const { connected, lostAt } = useStore(freshness);
  useStore(route);
  const head = shownHead();
  const isStale = useStore(stale);
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 500);
    return () => clearInterval(timer);
  }, []);
  const kind = isPast() ? 'past' : isStale || connected === false ? 'lost' : head?.fresh ? 'fresh' : 'old';
  const age = ageMs();
  const old = age === null ? 'no host has reported anything yet' : `data ${age < 60000 ? `${(Math.max(age, 0) / 1000).toFixed(1)} s` : duration(age * 1e6)} old`;
  const words = {
    past: () => `as of ${time(head.as_of_ns)}, from the archive${connected === false ? '; no connection' : ''}`,
    lost: () => `no connection${lostAt ? ` for ${duration((Date.now() - lostAt) * 1e6)}` : ''}; ${old}${isStale ? ': all is unknown' : ''}`,
    fresh: () => `live; ${old}`,
    old: () => `not fresh; ${old}`,
  };
  const announced = { past: 'the past', lost: 'the connection is lost', fresh: 'live', old: 'data is old' }[kind];
  return html`<p class=${`age ${kind}`}><span aria-hidden="true">${{ past: '◷', lost: '✖', fresh: '●', old: '□' }[kind]}</span> ${head || (kind === 'lost') ? words[kind]() : isPast() ? 'asking the archive …' : 'asking …'}
    <span class="hidden" role="status">${announced}</span></p>`;
}
