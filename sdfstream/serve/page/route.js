// The address holds all of the view's state, so that a view can be shared: #/nic/h03%2Fr1?at=2027-01-15T08:00:00Z
import { store } from './store.js';

export function parse(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').filter(Boolean).map(decoded);
  return { view: parts[0] || 'fleet', id: parts.slice(1), query: Object.fromEntries(new URLSearchParams(query)) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand
  }
}

export function format(view, id = [], query = {}) {
  const path = [view, ...id].map(encodeURIComponent).join('/');
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  return `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ''}`;
}

export const route = store(parse(location.hash));
addEventListener('hashchange', () => route.set(parse(location.hash)));

// The link to another view, at the same instant.
export function to(view, id = [], query = {}) {
  const { at } = route.get().query;
  return format(view, Array.isArray(id) ? id : [id], { ...query, at });
}

export function go(view, id, query) {
  location.hash = to(view, id, query);
}

// Change some of this view's own state; without a new entry in the history.
export function change(query) {
  const now = route.get();
  history.replaceState(null, '', format(now.view, now.id, { ...now.query, ...query }));
  route.set(parse(location.hash));
}
