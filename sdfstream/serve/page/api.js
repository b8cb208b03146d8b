// Questions to /v1, of this very host. The token, where one is needed, lives as long as the tab.
const SLOT = 'sdfstream.token';

export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export function setToken(token) {
  sessionStorage.setItem(SLOT, token);
}

export function headers() {
  const token = sessionStorage.getItem(SLOT);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

export async function ask(path, query = {}, signal) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const answer = await fetch(`/v1/${path}?${new URLSearchParams(given)}`, { headers: headers(), signal });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

export async function refusal(answer) {
  const said = await answer.json().catch(() => ({}));
  return new Refusal(answer.status, said.detail || `the server answered ${answer.status}`);
}

// Every page of a list up to `most` items; `onPage` gets what there is after each. `first`: when the first one was made.
export async function list(name, query, { most = 20000, signal, onPage } = {}) {
  const items = [];
  let cursor;
  let first;
  for (;;) {
    const page = await ask(name, { ...query, limit: Math.min(1000, most), cursor }, signal);
    first ??= page.as_of_ns;
    items.push(...page.items);
    cursor = page.next;
    const found = { head: page, first, total: page.total, items, whole: !cursor };
    if (onPage) onPage(found);
    if (!cursor || items.length >= most) return found;
  }
}
