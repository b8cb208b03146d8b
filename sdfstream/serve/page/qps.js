// Queue pairs with what they get: of a job, or of what crosses a node.
import { html } from './lib.js';
import { useList } from './data.js';
import { bits, duration, share } from './format.js';
import { Notice, Table } from './icons.js';
import { to } from './route.js';

export function QueuePairs({ node, job }) {
  const found = useList('qps', { node, job });
  return html`<${Notice} of=${found} nothing="No queue pair of a running job is known here." />
    ${found.items.length > 0 && html`<${QpTable} qps=${found.items} />`}`;
}

export function QpTable({ qps }) {
  const most = Math.max(1, ...qps.map((qp) => qp.rate_bps || 0));
  const slowest = [...qps].sort((p, q) => (p.rate_bps ?? Infinity) - (q.rate_bps ?? Infinity));
  return html`<${Table} label="Queue pairs, the slowest first" items=${slowest} columns=${[
    ['Queue pair', (qp) => html`<a href=${to('pair', [qp.src, qp.dst], { job: qp.job })}>${qp.qp}</a>`],
    ['To', (qp) => qp.dst],
    ['Ranks', (qp) => `${qp.rank} → ${qp.peer_rank}`],
    ['Job', (qp) => html`<a href=${to('job', qp.job)}>${qp.job}</a>`],
    ['Throughput', (qp) => html`<span class="bar"><meter min="0" max=${most} value=${qp.rate_bps || 0} aria-hidden="true"></meter> ${qp.rate_bps === null ? 'nothing sent' : bits(qp.rate_bps)}</span>`, 'number'],
    ['Delay', (qp) => (qp.owd_ns === null ? '–' : `${duration(qp.owd_ns)} ± ${duration(qp.err_ns)}`), 'number'],
    ['CE', (qp) => share(qp.ce_share), 'number'],
    ['Sent again', (qp) => share(qp.resent_share), 'number'],
    ['Failover', (qp) => (qp.armed ? 'armed' : '')],
    ['Crosses', (qp) => qp.elements.filter((e) => e.includes('->')).join(' ')],
  ]} />`;
}
