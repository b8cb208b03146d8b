// Every view by the first word of its address, loaded when it is first opened; and those of the menu.
import { useEffect, useState } from './lib.js';

const VIEWS = {
  fleet: () => import('./fleet.js').then((m) => m.Fleet),
  findings: () => import('./findings.js').then((m) => m.Findings),
  finding: () => import('./finding.js').then((m) => m.Finding),
  rack: () => import('./rack.js').then((m) => m.Rack),
  nic: () => import('./nic.js').then((m) => m.Nic),
  pair: () => import('./pair.js').then((m) => m.Pair),
  jobs: () => import('./job.js').then((m) => m.Jobs),
  job: () => import('./job.js').then((m) => m.Job),
  loop: () => import('./loop.js').then((m) => m.Loop),
  clocks: () => import('./clocks.js').then((m) => m.Clocks),
  pipeline: () => import('./pipeline.js').then((m) => m.Pipeline),
};
export const MENU = [['fleet', 'Fleet'], ['findings', 'Findings'], ['jobs', 'Jobs'], ['loop', 'Loop'], ['clocks', 'Clocks'], ['pipeline', 'Pipeline']];

// The view of a name: {shown} when it is there; {missing}: there is none of the name; {failed}: it could not be loaded.
export function useView(name) {
  const [loaded, set] = useState({});
  useEffect(() => {
    let is = true;
    if (!VIEWS[name]) return undefined;
    VIEWS[name]().then((shown) => is && set({ name, shown }), () => is && set({ name, failed: true }));
    return () => { is = false; };
  }, [name]);
  if (!Object.hasOwn(VIEWS, name)) return { missing: true };
  return loaded.name === name ? loaded : {};
}
