// How old what is shown is: of the last answer, whichever list it came with, and of the connection.
import { store } from './store.js';

export const STALE_MS = 10000; // without news for so long, what was healthy is unknown

export const freshness = store({ head: null, gotAt: 0, connected: null, lostAt: 0 });

export function note(head) {
  freshness.set({ ...freshness.get(), head, gotAt: Date.now() });
}

export function noteConnection(connected) {
  const now = freshness.get();
  if (now.connected !== connected) {
    freshness.set({ ...now, connected, lostAt: connected ? 0 : Date.now() });
  }
}

// Age [ms] of the newest data on the page; null where no host has reported anything, or nothing was asked yet.
export function ageMs(now = Date.now()) {
  const { head, gotAt } = freshness.get();
  if (!head || head.data_age_ns === null) return null;
  return head.data_age_ns / 1e6 + (isPast() ? 0 : now - gotAt);
}

export function isPast() {
  return freshness.get().head?.source?.kind === 'archive';
}

export const stale = store(false);

setInterval(() => {
  const { head, gotAt } = freshness.get();
  const is = Boolean(head) && !isPast() && Date.now() - gotAt > STALE_MS;
  if (is !== stale.get()) stale.set(is);
}, 500);
