// From a sentence of the answer to its evidence: the findings, commands and queue pairs that it speaks of.
import { to } from './route.js';

// Whether a sentence speaks of a name: not of one that only begins with it (h00 is not h00/r0).
export function speaksOf(sentence, name) {
  const at = sentence.indexOf(name);
  return at >= 0 && !/[\w/-]/.test(sentence[at - 1] || ' ') && !/^[\w/#>-]/.test(sentence.slice(at + name.length))
    ? true
    : at >= 0 && speaksOf(sentence.slice(at + name.length), name);
}

export function evidenceOf(sentence, { findings, commands, qps }) {
  const links = [];
  for (const finding of findings) {
    const places = [finding.subject?.id, ...(finding.suspects || []).slice(0, 1).map((s) => s.id)].filter(Boolean);
    const facts = (finding.evidence || []).map((e) => String(e.what));
    if (places.some((id) => speaksOf(sentence, id)) || facts.some((what) => what.length > 3 && sentence.includes(what)) || sentence.includes(finding.id) || sentence === finding.remedy) {
      links.push({ text: `${finding.kind} ${finding.id.slice(0, 8)}`, href: to('finding', finding.id) });
    }
  }
  for (const qp of qps) {
    if (speaksOf(sentence, qp.qp)) links.push({ text: qp.qp, href: to('pair', [qp.src, qp.dst], { job: qp.job }) });
  }
  if (/done|failover|command/i.test(sentence)) {
    for (const command of commands.slice(0, 3)) links.push({ text: `${command.action} ${command.target?.id || ''}`, href: to('loop', [], { command: command.id }) });
  }
  return links;
}
