// Jobs, and one of them: how fast, its slowest rank and queue pair, their paths, and why, sentence by sentence.
import { html } from './lib.js';
import { Chart } from './chart.js';
import { useList } from './data.js';
import { bits } from './format.js';
import { FindingTable } from './findings.js';
import { useHistory } from './history.js';
import { Figure, Notice, Table } from './icons.js';
import { marksOf } from './marks.js';
import { QpTable } from './qps.js';
import { to } from './route.js';
import { Span } from './span.js';
import { evidenceOf } from './why.js';

export function Jobs() {
  const found = useList('jobs', {}, { events: ['job', 'finding'] });
  return html`<h1>Jobs</h1><${Notice} of=${found} nothing="No job is known." />
    ${found.items.length > 0 && html`<${Table} label="Jobs" items=${found.items} keyOf=${(job) => job.job} columns=${[
      ['Job', (job) => html`<a href=${to('job', job.job)}>${job.job}</a> ${job.name !== job.job ? job.name : ''}`],
      ['State', (job) => job.state],
      ['Speed', (job) => speed(job)],
      ['Throughput', (job) => bits(job.throughput_bps), 'number'],
      ['Usually', (job) => bits(job.usual_bps), 'number'],
      ['Ranks', (job) => job.ranks, 'number'],
      ['Hosts', (job) => `${job.hosts.length}${job.stale_hosts.length ? `, ${job.stale_hosts.length} silent` : ''}`],
      ['Findings', (job) => job.findings.length, 'number'],
    ]} />`}`;
}

export function Job({ id }) {
  const jobs = useList('jobs', {}, { events: ['job', 'finding'] });
  const why = useList('why', { job: id }, { events: ['finding', 'command', 'outcome', 'job'] });
  const qps = useList('qps', { job: id });
  const findings = useList('findings', {}, { events: ['finding'], most: 2000 });
  const commands = useList('commands', { job: id }, { events: ['command', 'outcome'], most: 1000 });
  const history = useHistory({ job: id });
  const job = jobs.items.find((one) => one.job === id);
  const answer = why.items[0];
  const its = findings.items.filter((f) => (answer?.findings || []).includes(f.id) || (f.jobs || []).includes(id));
  const slow = slowestRank(qps.items);
  const x = history.items.map((item) => item.at_ns / 1e9);
  return html`<h1>Job ${id}</h1>
    <${Notice} of=${jobs.total && !job ? { ...jobs, total: 0 } : jobs} nothing=${`No job ${id} is known.`} />
    ${job && html`<dl class="figures">
      <${Figure} label="Throughput" value=${bits(job.throughput_bps)} note=${`usually ${bits(job.usual_bps)}`} />
      <${Figure} label="Speed" value=${speed(job)} kind=${job.slow ? 'bad' : ''} />
      <${Figure} label="Slowest rank" value=${slow ? `rank ${slow.rank}` : '–'} note=${slow ? bits(slow.bps) : ''} />
      <${Figure} label="Slowest queue pair" value=${job.slowest_qp || '–'} note=${bits(job.slowest_bps)} />
    </dl>`}
    <h2>Does the network hold it up?</h2>
    <${Notice} of=${why} />
    ${answer && html`<p><strong>${{ yes: '▲ Yes', no: '● No', 'cannot tell': '□ Cannot tell' }[answer.network]}</strong></p>
      <ol class="why">${[...answer.sentences, answer.advice].map((sentence) => html`<li>${sentence} ${evidenceOf(sentence, { findings: its, commands: commands.items, qps: qps.items })
        .map(({ text, href }) => html`<a class="evidence" href=${href}>[${text}]</a> `)}</li>`)}</ol>`}
    <h2>Throughput</h2><${Span} />
    <${Notice} of=${history} nothing="Nothing was measured of it in this stretch." />
    ${x.length > 0 && html`<${Chart} name="Throughput of the job" x=${x} text=${bits} marks=${marksOf(findings.items, commands.items, [id])} series=${[
      { label: 'all queue pairs', colour: 'link', values: history.items.map((item) => item.mean_bps) },
      { label: 'slowest queue pair', colour: 'warn', dash: [6, 3], values: history.items.map((item) => item.least_bps) }]} />`}
    <h2>Queue pairs</h2>
    <${Notice} of=${qps} nothing="None is known." />
    ${qps.items.length > 0 && html`<${QpTable} qps=${qps.items} />`}
    ${its.length > 0 && html`<h2>Findings</h2><${FindingTable} findings=${its} head=${findings.head} />`}
    ${job && html`<h2>Hosts</h2><p>${job.hosts.map((host) => html`<a href=${to('rack', host)}>${host}</a>${job.stale_hosts.includes(host) ? ' (silent: unknown) ' : ' '}`)}</p>`}`;
}

function speed(job) {
  if (job.state === 'ended') return 'ended';
  return { true: '▲ slow', false: '● as usual', null: '□ unknown' }[String(job.slow)];
}

// The rank that got least over its queue pairs together; those that sent nothing say nothing.
export function slowestRank(qps) {
  const rates = new Map();
  for (const qp of qps) if (qp.rate_bps !== null) rates.set(qp.rank, (rates.get(qp.rank) || 0) + qp.rate_bps);
  const [first] = [...rates].sort((p, q) => p[1] - q[1]);
  return first ? { rank: first[0], bps: first[1] } : null;
}
