// Reads the traffic limits of a pod from its annotations. An invalid annotation never makes the pod invalid: a number out
// of range is changed to the nearest limit, and an annotation that is invalid or requires another one is ignored. Both
// are reported.
import { quote, shorten } from "../../lib/shorten.ts";
import { parseDscp } from "../validation/numbers.ts";
import type { Labels } from "../resource.ts";
import type { ReportProblem } from "../validation/value-error.ts";
import { parseQuantity } from "./quantity.ts";

const QOS_PREFIX = "qos.projectcalico.org/";

export interface QosControlsJson {
  readonly [field: string]: number | string;
}

const RANGE = {
  Bandwidth: [1e3, 1e15],
  Burst: [1e3, 34_359_738_360],
  Peakrate: [1010, 1.01e15],
  Minburst: [1e3, 1e8],
  PacketRate: [1, 10_000],
  PacketBurst: [1, 10_000],
  MaxConnections: [1, 4_294_967_295],
} as const;
const DEFAULT_BURST = 4_294_967_296;
const DEFAULT_PACKET_BURST = 5;

export function qosFromAnnotations(annotations: Labels, report: ReportProblem): QosControlsJson | undefined {
  const controls: Record<string, number | string> = {};
  for (const direction of ["ingress", "egress"] as const) addDirection(direction, annotations, controls, report);
  const dscp = annotations[`${QOS_PREFIX}dscp`];
  if (dscp !== undefined) {
    if (parseDscp(dscp) === undefined) report(`${QOS_PREFIX}dscp: ${quote(dscp)} is not a DSCP, ignored`);
    else controls["dscp"] = /^\d+$/.test(dscp) ? Number(dscp) : dscp.toUpperCase();
  }
  return Object.keys(controls).length === 0 ? undefined : controls;
}

function addDirection(
  direction: "ingress" | "egress",
  annotations: Labels,
  controls: Record<string, number | string>,
  report: ReportProblem,
): void {
  const read = (name: keyof typeof RANGE, key = `${QOS_PREFIX}${direction}${name}`): number | undefined => {
    const text = annotations[key];
    if (text === undefined) return undefined;
    const value = parseQuantity(text);
    const [min, max] = RANGE[name];
    if (value === undefined) report(`${key}: ${quote(text)} is not a quantity, ignored`);
    else if (value < min || value > max)
      report(`${key}: ${shorten(text)} is not within ${min} to ${max}, nearest limit used`);
    return value === undefined ? undefined : Math.min(max, Math.max(min, value));
  };
  const reportMissing = (name: string, value: number | undefined, base: string): void => {
    if (value !== undefined) report(`${QOS_PREFIX}${direction}${name}: requires ${base}, ignored`);
  };
  const set = (name: string, value: number | undefined): void => {
    if (value !== undefined) controls[direction + name] = value;
  };

  // Calico's annotation takes precedence over that of Kubernetes, even if it is invalid.
  const hasCalicoBandwidth = annotations[`${QOS_PREFIX}${direction}Bandwidth`] !== undefined;
  const bandwidth = hasCalicoBandwidth ? read("Bandwidth") : read("Bandwidth", `kubernetes.io/${direction}-bandwidth`);
  const burst = read("Burst");
  const peakrate = read("Peakrate");
  const minburst = read("Minburst");
  const hasPeak = bandwidth !== undefined && peakrate !== undefined && peakrate > bandwidth;
  set("Bandwidth", bandwidth);
  if (bandwidth === undefined) reportMissing("Burst", burst, `${direction}Bandwidth`);
  else set("Burst", burst ?? DEFAULT_BURST);
  if (hasPeak) set("Peakrate", peakrate);
  else reportMissing("Peakrate", peakrate, `a lower ${direction}Bandwidth`);
  if (hasPeak) set("Minburst", minburst);
  else reportMissing("Minburst", minburst, `${direction}Peakrate`);

  const packetRate = read("PacketRate");
  const packetBurst = read("PacketBurst");
  set("PacketRate", packetRate);
  if (packetRate === undefined) reportMissing("PacketBurst", packetBurst, `${direction}PacketRate`);
  else set("PacketBurst", packetBurst ?? DEFAULT_PACKET_BURST);
  set("MaxConnections", read("MaxConnections"));
}
