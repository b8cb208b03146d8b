// Single items of a list, asked for by name when an event says that they changed: 4,000 are not asked for because of one.
import { onEvents } from './live.js';

const SETTLE_MS = 80; // events come in bursts: one question answers them all
const MOST = 24; // names in a question: its text is bounded; where more changed at once, the whole list is asked for

// The list `found` with what `answer` says of the items called `names`; those that it does not have are gone.
export function patched(found, names, answer, item) {
  const fresh = new Map(answer.items.map((one) => [one[item], one]));
  const asked = new Set(names);
  const before = found.items.filter((one) => !asked.has(one[item]) || fresh.has(one[item]));
  const items = before.map((one) => fresh.get(one[item]) || one);
  const known = new Set(before.map((one) => one[item]));
  for (const [name, one] of fresh) {
    if (!known.has(name)) items.splice(firstAfter(items, name, item), 0, one);
  }
  return { ...found, head: answer.head, items, total: found.total + items.length - found.items.length };
}

function firstAfter(items, name, item) {
  const at = items.findIndex((one) => one[item] > name);
  return at < 0 ? items.length : at;
}

// Ask for the items that events name, one question at a time, until the function that is returned is called; `tooMany`
// is called where the whole list should be asked for instead.
export function keepPatching({ events, item, ask, show, tooMany }) {
  const abort = new AbortController();
  let changed = new Set();
  let timer;
  let busy = false;
  const soon = () => {
    if (!busy && !timer && !abort.signal.aborted) timer = setTimeout(now, SETTLE_MS);
  };
  async function now() {
    timer = undefined;
    const names = [...changed];
    changed = new Set();
    if (names.length > MOST) return tooMany();
    busy = true;
    try {
      show(names, await ask(names, abort.signal));
    } catch {
      if (!abort.signal.aborted) tooMany(); // it says what is wrong
    }
    busy = false;
    return changed.size && soon();
  }
  const forget = onEvents(events, (_, event) => {
    const name = event?.data?.[item];
    if (!name) return tooMany();
    changed.add(name);
    return soon();
  });
  return () => {
    abort.abort();
    clearTimeout(timer);
    forget();
  };
}
