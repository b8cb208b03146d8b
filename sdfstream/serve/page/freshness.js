// How old what is shown is: of the last answer, whichever list it came with, and of the connection.
import { route } from './route.js';
import { store } from './store.js';

export const STALE_MS = 10000; // without news for so long, what was healthy is unknown

export const freshness = store({ head: null, gotAt: 0, connected: null, lostAt: 0 });
let aheadMs = 0; // bus time less this machine's: a replay's is another

// What an answer says of itself. One of now says nothing about a page that shows the past, nor the reverse.
export function note(head) {
  const isLive = head.source?.kind !== 'archive';
  if (isLive) aheadMs = head.as_of_ns / 1e6 - Date.now();
  if (isLive !== isPast()) freshness.set({ ...freshness.get(), head, gotAt: Date.now() });
}

export function noteConnection(connected) {
  const now = freshness.get();
  if (now.connected !== connected) {
    freshness.set({ ...now, connected, lostAt: connected ? 0 : Date.now() });
  }
}

// Whether the page shows an instant of the past.
export function isPast() {
  return Boolean(route.get().query.at);
}

// What the newest answer says of itself that fits what the page shows; null: there is none yet.
export function shownHead() {
  const { head } = freshness.get();
  return head && (head.source?.kind === 'archive') === isPast() ? head : null;
}

// Bus time [ms since the Unix epoch].
export function busNow() {
  return Date.now() + aheadMs;
}

// Age [ms] of the newest data on the page; null where no host has reported anything, or nothing was answered yet.
export function ageMs() {
  const head = shownHead();
  if (!head || head.data_age_ns === null) return null;
  return head.data_age_ns / 1e6 + (isPast() ? 0 : Date.now() - freshness.get().gotAt);
}

export const stale = store(false);

setInterval(() => {
  const { head, gotAt } = freshness.get();
  const is = Boolean(head) && !isPast() && Date.now() - gotAt > STALE_MS;
  if (is !== stale.get()) stale.set(is);
}, 500);
