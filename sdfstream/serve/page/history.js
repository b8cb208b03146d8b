// Figures over time, from the archive: asked when a view opens, and again every half minute while it shows now.
import { ask } from './api.js';
import { useEffect, useState } from './lib.js';
import { route } from './route.js';
import { useStore } from './store.js';

export const SPANS = { 300: '5 min', 3600: '1 h', 21600: '6 h', 86400: '24 h', 604800: '7 d' };

// {items, head, error, total}, as lists have it; `query`: {a, b}, {job}, {nic} or {cells}; null: nothing is asked.
export function useHistory(query) {
  const { at, span = '3600' } = useStore(route).query;
  const [found, set] = useState({ items: [], total: null });
  const key = JSON.stringify([query, at, span]);
  useEffect(() => {
    if (!query) return undefined;
    const abort = new AbortController();
    const read = () => ask('history', { at, span_s: span, ...query }, abort.signal)
      .then((head) => set({ items: head.items, total: head.items.length, head }))
      .catch((error) => abort.signal.aborted || set({ items: [], total: null, error }));
    read();
    const timer = at ? null : setInterval(() => document.hidden || read(), 30000);
    return () => {
      abort.abort();
      clearInterval(timer);
    };
  }, [key]);
  return found;
}
