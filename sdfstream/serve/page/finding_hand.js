// What an operator may say of a finding: silence it or what it is about, label it, lift its silence.
import { html, useState } from './lib.js';
import { Hand, useHand } from './hand.js';
import { Choice } from './icons.js';

const TYPES = ['nic', 'link', 'switch', 'host', 'job', 'clock', 'path']; // that a silence may be about
const LASTS = { 1800: '30 min', 3600: '1 h', 7200: '2 h', 28800: '8 h', 86400: '1 day', 604800: '7 days' };
// the causes of schemas/findings.md, and that it was none
export const LABELS = [
  'link-failure', 'port-disabled', 'degraded-link', 'gray-failure', 'queueing', 'ecmp-imbalance', 'pause-storm', 'slow-nic', 'ecn-mistuned', 'class-mismatch',
  'transport-mismatch', 'mtu', 'remarking', 'cabling', 'naming', 'host-gone', 'clock', 'software', 'unknown', 'false-alarm',
];

export function FindingHand({ finding }) {
  const { can, act, said } = useHand();
  const subject = TYPES.includes(finding.subject?.type) ? finding.subject : null;
  return html`<h2>Say something of it</h2>
    <${Hand} command=${`sdfstream silence finding:${finding.id} --for 2h --reason …, sdfstream label ${finding.id} CAUSE`} />
    ${can && html`<${SilenceForm} finding=${finding} subject=${subject} act=${act} /><${LabelForm} finding=${finding} act=${act} />
      ${finding.silence && html`<p><button type="button" onClick=${() => act({ what: 'lift', target: { type: 'override', id: finding.silence.id } })}>Lift silence</button></p>`}`}
    ${said}`;
}

function SilenceForm({ finding, subject, act }) {
  const [about, setAbout] = useState('finding');
  const [lastsS, setLasts] = useState('7200');
  const enter = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const target = about === 'finding' ? { type: 'finding', id: finding.id } : { type: subject.type, id: subject.id };
    act({ what: 'silence', target, lasts_s: Number(lastsS), set: { reason: form.get('reason').trim(), maintenance: form.get('maintenance') !== null } });
  };
  const choices = { finding: 'this finding', ...(subject ? { subject: `all about ${subject.type} ${subject.id}` } : {}) };
  return html`<form class="hand" onSubmit=${enter}>
    <${Choice} label="Silence" value=${about} of=${choices} set=${setAbout} />
    <${Choice} label="for" value=${lastsS} of=${LASTS} set=${setLasts} />
    <label>Reason <input name="reason" maxlength="500" /></label>
    <label><input name="maintenance" type="checkbox" /> maintenance: the loop starts nothing new there</label>
    <button>Silence</button>
  </form>`;
}

function LabelForm({ finding, act }) {
  const [cause, setCause] = useState(LABELS.includes(finding.cause) ? finding.cause : 'unknown');
  const enter = (event) => {
    event.preventDefault();
    const note = new FormData(event.target).get('note').trim();
    act({ what: 'label', target: { type: 'finding', id: finding.id }, set: note ? { cause, note } : { cause } });
  };
  return html`<form class="hand" onSubmit=${enter}>
    <${Choice} label="It was" value=${cause} of=${Object.fromEntries(LABELS.map((one) => [one, one === 'false-alarm' ? 'a false alarm' : one]))} set=${setCause} />
    <label>Note <input name="note" maxlength="500" /></label>
    <button>Label</button>
  </form>`;
}
