// Reports the state of each host.
import { alignColumns } from "../lib/terminal/table.ts";
import type { Lab } from "./lab.ts";
import { whyNotReady } from "./readiness.ts";
import { paint } from "./terminal.ts";

export interface HostStatus {
  readonly host: string;
  readonly addresses: readonly string[];
  readonly state: "ready" | "not ready" | "down";
  readonly detail: string;
  readonly pods: number;
}

export async function labStatus(lab: Lab): Promise<HostStatus[]> {
  if (lab.options.kubelets) return (await import("./kubernetes/status.ts")).clusterStatus(lab);
  return [...lab.plan.nodes, ...lab.plan.routers].map((planned) => {
    const host = lab.host(planned.name);
    const base = {
      host: planned.name,
      addresses: planned.interfaces.flatMap((nic) => nic.addresses),
      pods: lab.record.pods.filter((pod) => pod.node === planned.name).length,
    };
    if (host.holder === undefined)
      return { ...base, state: "down", detail: "the host does not run; start it with calico lab up" };
    const isRouter = lab.plan.routers.some((router) => router.name === planned.name);
    if (isRouter) {
      const isRunning = host.program("bird") !== undefined;
      return { ...base, state: isRunning ? "ready" : "not ready", detail: `bird is ${isRunning ? "" : "not "}running` };
    }
    const fault = whyNotReady(lab, planned.name);
    return { ...base, state: fault === undefined ? "ready" : "not ready", detail: fault ?? "" };
  });
}

export function renderStatus(lab: Lab, rows: readonly HostStatus[], colour: boolean): string {
  const { topology, backend, dataplane, datastore } = lab.options;
  const faults = lab.record.faults.map((fault) => `broken: ${fault} (calico lab heal)`);
  return [
    `lab ${lab.folder.name}: topology ${topology}, backend ${backend}, dataplane ${dataplane}, datastore ${datastore}`,
    alignColumns([
      ["HOST", "ADDRESSES", "STATE", "PODS", "DETAIL"],
      ...rows.map((row) => [
        row.host,
        row.addresses.join(","),
        paint(colour, row.state === "ready" ? "green" : "red", row.state),
        String(row.pods),
        row.detail,
      ]),
    ]),
    ...faults,
  ].join("\n");
}
