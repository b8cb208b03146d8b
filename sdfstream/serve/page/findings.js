// Findings: what broke, where, since when, with the evidence and what to do; open ones, and the history.
import { html } from './lib.js';
import { useList } from './data.js';
import { duration, short, time } from './format.js';
import { Choice, Notice, Severity, Table } from './icons.js';
import { change, route, to } from './route.js';
import { useStore } from './store.js';
import { Subject } from './subject.js';

const WHICH = { open: 'open', resolved: 'resolved', all: 'all' };

export function Findings() {
  const { which = 'open', severity = '' } = useStore(route).query;
  const query = { open: which === 'all' ? undefined : which === 'open', severity: severity || undefined };
  const found = useList('findings', query, { events: ['finding'], most: 1000 });
  return html`<h1>Findings</h1>
    <p class="choices">
      <${Choice} label="Show" value=${which} of=${WHICH} set=${(value) => change({ which: value })} />
      <${Choice} label="Severity" value=${severity} of=${{ '': 'any', urgent: 'urgent', warning: 'warning', info: 'info' }} set=${(value) => change({ severity: value })} />
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
    ['Since', (f) => time(f.since_at_ns)],
    ['Lasted', (f) => duration((f.resolved_at_ns || head?.as_of_ns || 0) - f.since_at_ns), 'number'],
  ]} />`;
}

export function Finding({ id }) {
  const found = useList('findings', { id }, { events: ['finding'] });
  const finding = found.items[0];
  const commands = useList('commands', {}, { events: ['command', 'outcome'], most: 1000 });
  if (!finding) return html`<h1>Finding</h1><${Notice} of=${found} nothing=${`No finding ${id} is known.`} />`;
  const answers = commands.items.filter((command) => (command.reason || []).includes(id));
  return html`<h1>${finding.kind} <small>${finding.id}</small></h1>
    <dl class="facts">
      <dt>About</dt><dd><${Subject} of=${finding.subject} /></dd>
      <dt>Severity</dt><dd><${Severity} is=${finding.severity} /></dd>
      <dt>Status</dt><dd>${finding.left_open ? 'left open by an earlier run: whether it still holds is unknown' : finding.status}</dd>
      <dt>Since</dt><dd>${time(finding.since_at_ns)}</dd>
      ${finding.resolved_at_ns && html`<dt>Resolved</dt><dd>${time(finding.resolved_at_ns)}</dd>`}
      <dt>Cause</dt><dd>${finding.cause || 'not known'} ${finding.confidence !== null && finding.confidence !== undefined ? `(probability ${short(finding.confidence)})` : ''}</dd>
      ${(finding.jobs || []).length > 0 && html`<dt>Jobs</dt><dd>${finding.jobs.map((job) => html`<a href=${to('job', job)}>${job}</a> `)}</dd>`}
      ${finding.remedy && html`<dt>Remedy</dt><dd>${finding.remedy}</dd>`}
    </dl>
    <h2>Evidence</h2>
    ${(finding.evidence || []).length ? html`<${Table} label="Evidence" items=${finding.evidence} keyOf=${(e) => `${e.what}${e.where}`} columns=${[
      ['What', (e) => e.what],
      ['Where', (e) => e.where],
      ['Value', (e) => figure(e.value, e.unit), 'number'],
      ['Usual', (e) => figure(e.baseline, e.unit), 'number'],
    ]} />` : html`<p class="notice">None is given.</p>`}
    ${(finding.suspects || []).length > 0 && html`<h2>Suspects</h2><${Table} label="Suspects" items=${finding.suspects} columns=${[
      ['What', (s) => html`<${Subject} of=${{ type: '', id: s.id }} />`],
      ['Probability', (s) => short(s.probability), 'number'],
    ]} />`}
    ${answers.length > 0 && html`<h2>Commands</h2><ul>${answers.map((c) => html`<li><a href=${to('loop', [], { command: c.id })}>${c.action} ${c.target.id}</a>: ${c.state || c.waits}</li>`)}</ul>`}
    <p><a href=${to('findings')}>All findings</a></p>`;
}

function figure(value, unit) {
  if (value === null || value === undefined) return '–';
  return unit === 'ns' ? duration(value) : `${short(value)} ${unit || ''}`;
}
