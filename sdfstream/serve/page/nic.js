// One NIC: both directions, its port, findings, what befell it, the paths that begin at it, its queue pairs.
import { html } from './lib.js';
import { useList } from './data.js';
import { duration, share, time } from './format.js';
import { FindingTable } from './findings.js';
import { useHistory } from './history.js';
import { Notice, Table } from './icons.js';
import { QueuePairs } from './qps.js';
import { NicTable } from './rack.js';
import { to } from './route.js';
import { Span } from './span.js';

export function Nic({ id }) {
  const host = id.split('/')[0];
  const found = useList('nics', { host }, { events: ['nic'], item: 'nic' });
  const nic = found.items.find((one) => one.nic === id);
  const findings = useList('findings', {}, { events: ['finding'], most: 2000 });
  const about = findings.items.filter((f) => [f.subject?.id, ...(f.suspects || []).map((s) => s.id)].some((name) => touches(name, id)));
  const paths = useList('paths', { src: id }, { most: 200 });
  const timeline = useHistory({ nic: id });
  return html`<h1>NIC ${id}</h1>
    <${Notice} of=${found.total && !nic ? { ...found, total: 0 } : found} nothing=${`No NIC ${id} is known.`} />
    ${nic && html`<${NicTable} nics=${[nic]} /><p>In this state since ${time(nic.since_at_ns)}; newest word of it ${nic.age_ns === null ? 'never' : `${duration(nic.age_ns)} old`}. <a href=${to('rack', id)}>Its rack</a>, <a href=${to('rack', host)}>its host</a></p>`}
    <h2>Findings</h2>
    ${about.length > 0 ? html`<${FindingTable} findings=${about} head=${findings.head} />` : html`<${Notice} of=${{ ...findings, total: findings.total === null ? null : 0 }} nothing="None about it." />`}
    <h2>What befell it</h2><${Span} />
    <${Notice} of=${timeline} nothing="Nothing in this stretch." />
    ${timeline.items.length > 0 && html`<${Table} label="What befell it" items=${timeline.items} keyOf=${(one) => `${one.at_ns}${one.what}${one.state}`} most=${50} columns=${[
      ['When', (one) => time(one.at_ns)], ['What', (one) => one.what], ['State', (one) => one.state], ['Why', (one) => one.detail],
    ]} />`}
    <h2>Queue pairs</h2><${QueuePairs} node=${id} />
    <h2>Paths from it</h2>
    <${Notice} of=${paths} nothing="No path from it is known." />
    ${paths.items.length > 0 && html`<${PathTable} paths=${paths.items} />`}`;
}

export function PathTable({ paths }) {
  return html`<${Table} label="Paths" items=${paths} columns=${[
    ['To', (p) => html`<a href=${to('pair', [p.src, p.dst])}>${p.src} > ${p.dst}</a>`],
    ['Port', (p) => `${p.transport}:${p.path} dscp${p.dscp}`],
    ['Direction', (p) => p.dir],
    ['State', (p) => p.state],
    ['Delay', (p) => (p.owd_p50_ns === null ? '–' : `${duration(p.owd_p50_ns)} ± ${duration(p.err_ns)}`), 'number'],
    ['Over the floor', (p) => duration(p.excess_p50_ns), 'number'],
    ['Loss', (p) => share(p.loss), 'number'],
    ['CE', (p) => share(p.ce), 'number'],
  ]} />`;
}

function touches(name, id) {
  return String(name || '').split(/--|->|>| /).some((one) => one === id || one.startsWith(`${id}:`) || one.startsWith(`${id}#`));
}
