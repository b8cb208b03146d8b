// Findings and commands as marks on a time axis: those that concern any of some names (NICs, hosts, links, queue pairs).
import { to } from './route.js';

export function marksOf(findings, commands, names) {
  const concerns = new Set(names);
  const about = (finding) => [finding.subject?.id, ...(finding.suspects || []).map((s) => s.id), ...(finding.jobs || [])]
    .some((id) => concerns.has(id) || concerns.has(String(id || '').split('/')[0]) || concerns.has(linkOf(id)));
  const seconds = (ns) => ns / 1e9;
  const found = findings.filter(about);
  const ids = new Set(found.map((finding) => finding.id));
  return [
    ...found.map((f) => ({ at_s: seconds(f.since_at_ns), sign: '▲', text: `${f.kind} ${f.subject?.id || ''}`, href: to('finding', f.id) })),
    ...found.filter((f) => f.resolved_at_ns).map((f) => ({ at_s: seconds(f.resolved_at_ns), sign: '▽', text: `${f.kind} resolved`, href: to('finding', f.id) })),
    ...commands.filter((c) => concerns.has(c.target?.id) || concerns.has(c.job) || (c.reason || []).some((id) => ids.has(id)))
      .map((c) => ({ at_s: seconds(c.began_at_ns), sign: '⚙', text: `${c.action} ${c.target?.id || ''}`, href: to('loop', [], { command: c.id }) })),
  ].sort((p, q) => p.at_s - q.at_s);
}

// The link of one of its directions: l0->s1 is of l0--s1.
export function linkOf(id) {
  const ends = String(id || '').split('->');
  return ends.length === 2 ? ends.sort().join('--') : String(id || '');
}
