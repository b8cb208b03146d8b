// Small elements that many views share: a state in a table, a figure with its label, a message in place of a list.
import { html } from './lib.js';
import { SIGNS, shown } from './states.js';
import { stale } from './freshness.js';
import { useStore } from './store.js';

export function State({ is }) {
  const state = shown(is, useStore(stale));
  return html`<span class=${`state ${state}`}><span aria-hidden="true">${SIGNS[state]}</span> ${state}</span>`;
}

export function Severity({ is }) {
  const signs = { urgent: '▲', warning: '◆', info: '○' };
  return html`<span class=${`severity ${is}`}><span aria-hidden="true">${signs[is] || '○'}</span> ${is || 'unknown'}</span>`;
}

export function Figure({ label, value, note, kind = '', href }) {
  const body = html`<dt>${label}</dt><dd class=${kind}>${href ? html`<a href=${href}>${value}</a>` : value}${note && html`<small>${note}</small>`}</dd>`;
  return html`<div class="figure">${body}</div>`;
}

// What stands where a list has nothing to show: why.
export function Notice({ of, nothing = 'There is nothing here.' }) {
  if (of.error) return html`<p class="notice" role="alert">Not known: ${of.error.message}.</p>`;
  if (of.total === null) return html`<p class="notice">Asking …</p>`;
  return of.total === 0 ? html`<p class="notice">${nothing}</p>` : null;
}

// A table: columns are [title, cell(item), class]; the rows beyond `most` are counted.
export function Table({ label, columns, items, most = 200, keyOf = (item) => item.id }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table>
    <thead><tr>${columns.map(([title, , kind]) => html`<th scope="col" class=${kind}>${title}</th>`)}</tr></thead>
    <tbody>${items.slice(0, most).map((item) => html`<tr key=${keyOf(item)}>${columns.map(([, cell, kind]) => html`<td class=${kind}>${cell(item)}</td>`)}</tr>`)}</tbody>
  </table>${items.length > most && html`<p class="notice">${items.length - most} more are not shown.</p>`}</div>`;
}

// One of several, by name.
export function Choice({ label, value, of, set }) {
  return html`<label>${label} <select value=${value} onChange=${(event) => set(event.target.value)}>
    ${Object.entries(of).map(([name, text]) => html`<option value=${name} selected=${name === value}>${text}</option>`)}</select></label>`;
}
