// The fleet at a glance: five figures, the map of NICs, the map of paths, the links.
import { html } from './lib.js';
import { Links } from './clos.js';
import { useList } from './data.js';
import { stale } from './freshness.js';
import { share, short } from './format.js';
import { Heat } from './heat.js';
import { Figure, Notice } from './icons.js';
import { NicMap } from './nic_map.js';
import { to } from './route.js';
import { SIGNS, STATES, shown } from './states.js';
import { useStore } from './store.js';

export function Fleet() {
  const nics = useList('nics', {}, { events: ['nic'], item: 'nic' });
  const isStale = useStore(stale);
  const count = (state) => nics.items.filter((nic) => shown(nic.state, isStale) === state).length;
  return html`<h1>Fleet</h1>
    <${Numbers} nics=${nics} count=${count} />
    <section aria-labelledby="nics">
      <h2 id="nics">NICs</h2>
      <${Notice} of=${nics} nothing="No host has reported a NIC yet." />
      ${nics.items.length > 0 && html`<${NicMap} nics=${nics.items} />`}
      <p class="legend">${STATES.map((state) => html`<span class=${`state ${state}`}>${SIGNS[state]} ${count(state)} ${state}</span>`)}</p>
    </section>
    ${(nics.total !== null || nics.error) && html`<${Heat} /><${Links} />`}`; // the NICs first: people look there first
}

function Numbers({ nics, count }) {
  const findings = useList('findings', { open: true }, { events: ['finding', 'outcome'], most: 1000 });
  const lossy = useList('paths', { min_loss: 0.01 }, { most: 1 });
  const paths = useList('paths', {}, { most: 1 });
  const synced = useList('clocks', { status: 'synced' }, { most: 1 });
  const clocks = useList('clocks', {}, { most: 1 });
  const urgent = findings.items.filter((finding) => finding.severity === 'urgent' && !finding.silence).length;
  const silenced = findings.items.filter((finding) => finding.silence).length;
  const note = [urgent && `${urgent} urgent`, silenced && `${silenced} silenced`].filter(Boolean).join(', ');
  return html`<dl class="figures">
    <${Figure} label="NICs healthy" value=${nics.total === null ? '–' : `${count('healthy')} of ${nics.total}`} kind=${count('unhealthy') ? 'bad' : ''} note=${count('unknown') ? `${count('unknown')} unknown` : ''} />
    <${Figure} label="Open findings" value=${short(findings.total)} href=${to('findings')} kind=${urgent ? 'bad' : ''} note=${note} />
    <${Figure} label="Paths that lose 1 % or more" value=${paths.total === null ? '–' : `${short(lossy.total)} of ${paths.total}`} note=${paths.total ? share(lossy.total / paths.total) : ''} />
    <${Figure} label="Clocks synced" value=${clocks.total === null ? '–' : `${short(synced.total)} of ${clocks.total}`} href=${to('clocks')} />
  </dl>`;
}
