// Findings: what broke, where, since when, with the evidence and what to do; open ones, and the history.
import { html } from './lib.js';
import { useList } from './data.js';
import { duration, time } from './format.js';
import { Choice, Notice, Severity, Table } from './icons.js';
import { labelOf, silenceOf } from './notes.js';
import { change, route, to } from './route.js';
import { useStore } from './store.js';
import { Subject } from './subject.js';

const SILENCED = { '': 'any', true: 'silenced', false: 'not silenced' };
const WHICH = { open: 'open', resolved: 'resolved', all: 'all' };

export function Findings() {
  const { which = 'open', severity = '', silenced = '' } = useStore(route).query;
  const query = { open: which === 'all' ? undefined : which === 'open', severity, silenced };
  const found = useList('findings', query, { events: ['finding', 'outcome'], most: 1000 });
  return html`<h1>Findings</h1>
    <p class="choices">
      <${Choice} label="Show" value=${which} of=${WHICH} set=${(value) => change({ which: value })} />
      <${Choice} label="Severity" value=${severity} of=${{ '': 'any', urgent: 'urgent', warning: 'warning', info: 'info' }} set=${(value) => change({ severity: value })} />
      <${Choice} label="Silence" value=${silenced} of=${SILENCED} set=${(value) => change({ silenced: value })} />
    </p>
    <${Notice} of=${found} nothing=${which === 'open' ? 'No finding is open.' : 'There is none.'} />
    ${found.items.length > 0 && html`<${FindingTable} findings=${found.items} head=${found.head} />`}`;
}

export function FindingTable({ findings, head, label = 'Findings' }) {
  return html`<${Table} label=${label} items=${findings} columns=${[
    ['Finding', (f) => html`<a href=${to('finding', f.id)}>${f.kind}</a>`],
    ['Severity', (f) => html`<${Severity} is=${f.severity} />`],
    ['About', (f) => html`<${Subject} of=${f.subject} />`],
    ['Status', (f) => (f.left_open ? 'left open by an earlier run: unknown' : f.status)],
    ['Said', (f) => [silenceOf(f), labelOf(f)].filter(Boolean).join('; ')],
    ['Since', (f) => time(f.since_at_ns)],
    ['Lasted', (f) => duration((f.resolved_at_ns || head?.as_of_ns || 0) - f.since_at_ns), 'number'],
  ]} />`;
}
