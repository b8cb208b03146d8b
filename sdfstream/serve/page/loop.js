// The guarded loop: its mode, and its commands with what they changed, what that brought, and what they wait for.
import { html, useState } from './lib.js';
import { useList } from './data.js';
import { bits, duration, short, time } from './format.js';
import { Hand, useHand } from './hand.js';
import { Choice, Figure, Notice, Table } from './icons.js';
import { route, to } from './route.js';
import { useStore } from './store.js';
import { Subject } from './subject.js';

export function Loop() {
  const { command: chosen } = useStore(route).query;
  const loop = useList('loop', {}, { events: ['override', 'outcome', 'command'] });
  const found = useList('commands', { id: chosen }, { events: ['command', 'outcome', 'override'], most: 1000 });
  const inForce = useList('commands', { in_force: true }, { events: ['command', 'outcome'], most: 1 });
  const mode = loop.items.find((item) => item.type === 'mode');
  const { can, act, said } = useHand();
  const overrides = loop.items.filter((item) => item.type === 'override');
  return html`<h1>Loop</h1>
    <${Notice} of=${loop} />
    ${mode && html`<dl class="figures">
      <${Figure} label="Mode" value=${mode.mode || 'as in the settings'} note=${mode.mode ? `by ${mode.operator}, ${time(mode.said_at_ns)}` : 'no operator has set one'} />
      <${Figure} label="Commands in force" value=${short(inForce.total)} />
      <${Figure} label="Waiting for approval" value=${short(mode.waiting)} />
    </dl>`}
    <h2>Your hand on it</h2>
    <${Hand} command="sdfstream policy mode observe, sdfstream approve ID, sdfstream undo ID" />
    ${can && html`<${ModeForm} mode=${mode?.mode} act=${act} />`}
    ${said}
    <h2>Commands</h2>
    ${chosen && html`<p><a href=${to('loop')}>All commands</a></p>`}
    <${Notice} of=${found} nothing="The loop has done nothing and proposed nothing." />
    ${found.items.length > 0 && html`<${Table} label="Commands" items=${found.items} columns=${[
      ['Began', (c) => time(c.began_at_ns)],
      ['Action', (c) => html`<a href=${to('loop', [], { command: c.id })}>${c.action}</a>`],
      ['Target', (c) => html`<${Subject} of=${c.target} />`],
      ['Job', (c) => c.job && html`<a href=${to('job', c.job)}>${c.job}</a>`],
      ['Mode', (c) => c.mode || 'refused'],
      ['State', (c) => `${c.state || c.waits || 'unknown'}${c.in_force ? `, lease ${duration(c.lease_left_ns)}` : ''}`],
      ['Why', (c) => c.why || ''],
      ['Set', (c) => plain(c.set)],
      ['Before', (c) => bits(c.before?.throughput_bps), 'number'],
      ['After', (c) => bits(c.after?.throughput_bps), 'number'],
      ['Gain', (c) => (c.gain === null ? '–' : `× ${short(c.gain)}`), 'number'],
      ['Findings', (c) => (c.reason || []).map((id) => html`<a href=${to('finding', id)}>${id.slice(0, 12)}</a> `)],
      ['Id', (c) => html`<code>${c.id}</code>`],
      ...(can ? [['Your hand', (c) => html`<${CommandHand} command=${c} act=${act} />`]] : []),
    ]} />`}
    ${overrides.length > 0 && html`<h2>Overrides</h2><${Table} label="Overrides" items=${overrides} columns=${[
      ['When', (o) => time(o.said_at_ns)], ['What', (o) => o.what], ['By', (o) => o.operator], ['Target', (o) => plain(o.target)], ['Until', (o) => time(o.expires_at_ns)],
    ]} />`}`;
}

const MODES = { observe: 'observe', 'dry-run': 'dry-run', approve: 'approve', enforce: 'enforce' };

function ModeForm({ mode, act }) {
  const [chosen, choose] = useState(mode || 'dry-run');
  const enter = (event) => (event.preventDefault(), act({ what: 'mode', set: { mode: chosen } }));
  return html`<form class="hand" onSubmit=${enter}>
    <button type="button" onClick=${() => act({ what: 'mode', set: { mode: 'observe' } })}>Stop the loop (mode observe)</button>
    <${Choice} label="Mode" value=${chosen} of=${MODES} set=${choose} /> <button>Set mode</button>
  </form>`;
}

function CommandHand({ command, act }) {
  const button = (what, text) => html`<button type="button" aria-label=${`${text} ${command.action} ${command.target.id}`} onClick=${() => act({ what, command: command.id })}>${text}</button> `;
  if (command.mode === 'approve' && !command.state) return html`${button('approve', 'Approve')}${button('refuse', 'Refuse')}`;
  return command.in_force ? button('undo', 'Undo') : null;
}

function plain(value) {
  return value && typeof value === 'object' ? Object.entries(value).map(([name, v]) => `${name} ${typeof v === 'object' ? JSON.stringify(v) : v}`).join(', ') : value || '';
}
