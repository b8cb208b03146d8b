// One finding: what broke, with the evidence, what was done about it, and what operators say of it.
import { html } from './lib.js';
import { useList } from './data.js';
import { FindingHand } from './finding_hand.js';
import { duration, short, time } from './format.js';
import { Notice, Severity, Table } from './icons.js';
import { labelOf, silenceOf } from './notes.js';
import { to } from './route.js';
import { Subject } from './subject.js';

export function Finding({ id }) {
  const found = useList('findings', { id }, { events: ['finding', 'outcome'] });
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
      <dt>Silence</dt><dd>${silenceOf(finding) || 'none: whoever is told of findings is told of it'}</dd>
      <dt>Label</dt><dd>${labelOf(finding) || 'nobody has said what it was'}</dd>
    </dl>
    <${FindingHand} finding=${finding} />
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
