// Lists as views use them: asked anew when an event says that they changed, and every few seconds.
import { list } from './api.js';
import { note } from './freshness.js';
import { useEffect, useState } from './lib.js';
import { onEvents } from './live.js';
import { keepPatching, patched } from './patch.js';
import { route } from './route.js';
import { useStore } from './store.js';

const SETTLE_MS = 80; // events come in bursts: one question answers them all
const APART = 2; // times as long as the last answer took: so long none is asked for after it, whatever events come
const BUSY_MS = 1500; // where the server says that too many ask
const PAUSES = 15; // what takes the server long is asked for seldom: a sixteenth of the time at most
const NOTHING = { items: [], total: null, head: null, error: null };

// The items of a list: {items, total, head, error}; total is null until the first answer. No name: nothing is asked.
// With `item`, the name of a filter and of what events carry, a few changed items are asked for alone.
export function useList(name, query = {}, { events = [], everyMs = 3000, most, item } = {}) {
  const { at } = useStore(route).query;
  const [found, set] = useState(NOTHING);
  const key = JSON.stringify([name, query, at, most]);
  useEffect(() => {
    if (!name) return undefined;
    // what is past does not change: it is asked once
    const when = at ? { events: [], everyMs: 0 } : { events: [...(item ? [] : events), 'gap', 'back'], everyMs };
    const whole = keepAsking({ ...when, ask: (signal) => list(name, { ...query, at }, { most, signal }), show });
    if (at || !item) return whole.stop;
    const single = (names, signal) => list(name, { ...query, [item]: names.join(',') }, { signal });
    const stop = keepPatching({ events, item, ask: single, show: patch, tooMany: whole.soon });
    return () => [stop, whole.stop].forEach((end) => end());
  }, [key]);
  let later = []; // patches that are newer than the last whole answer, which may have been asked for before them

  function show(answer, error) {
    if (answer) {
      note(answer.head);
      later = later.filter((one) => one.answer.first > answer.first);
      for (const one of later) answer = patched(answer, one.names, one.answer, item);
    }
    set((before) => ({ ...(answer || (before.key === key ? before : NOTHING)), error, key }));
  }

  function patch(names, answer) {
    note(answer.head);
    later.push({ names, answer });
    set((before) => (before.key === key && before.total !== null ? patched(before, names, answer, item) : before));
  }
  return found.key === key ? found : NOTHING;
}

// Ask now, on events and every so often, one question at a time, until `stop` is called; `soon`: as if an event came.
function keepAsking({ ask, show, events, everyMs }) {
  const abort = new AbortController();
  let timer;
  let dueAt = Infinity;
  let restUntil = 0;
  let busy = false;
  let again = false;
  const wake = (at) => { // what is due earlier already stays so
    if (at >= dueAt || abort.signal.aborted) return;
    dueAt = at;
    clearTimeout(timer);
    timer = setTimeout(now, at - Date.now());
  };
  const soon = () => wake(Math.max(Date.now() + SETTLE_MS, restUntil));
  async function now() {
    dueAt = Infinity;
    if (document.hidden && everyMs) return wake(Date.now() + everyMs);
    busy = true;
    again = false;
    const began = Date.now();
    let pauseMs = everyMs;
    try {
      show(await ask(abort.signal), null);
    } catch (error) {
      if (!abort.signal.aborted) show(null, error);
      pauseMs = error.status === 429 ? BUSY_MS : everyMs;
    }
    busy = false;
    const tookMs = Date.now() - began;
    restUntil = Date.now() + APART * tookMs;
    if (again) soon();
    else if (pauseMs) wake(Date.now() + Math.max(pauseMs, PAUSES * tookMs));
    return undefined;
  }
  const event = () => (busy ? (again = true) : soon());
  const forget = onEvents(events, event);
  now();
  const stop = () => {
    abort.abort();
    clearTimeout(timer);
    forget();
  };
  return { stop, soon: event };
}
