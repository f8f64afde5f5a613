// What this host knows about its BGP sessions beside BIRD's answer.
import { readFileSync } from "node:fs";
import type { BirdSession, SessionSurroundings } from "../../bgp/index.ts";
import { openRtnetlink, type Rtnetlink } from "../../kernel/index.ts";
import type { IpAddress } from "../../lib/ip/ip.ts";
import { readFileIfExists } from "../../lib/files/replace-file.ts";
import { BGP_SERVICE_FILE } from "../supervisor/children.ts";
import { isOlderThanState, readSessionErrors } from "./session-errors.ts";

/** What the BGP service writes down of the plan in force. */
export interface PlanInForce {
  readonly pid: number;
  readonly at: string;
  readonly peers: readonly {
    readonly name: string;
    readonly neighbor: string;
    readonly sourceAddress: string | null;
    readonly hasPassword: boolean;
  }[];
  readonly problems: readonly { readonly object: string; readonly problem: string }[];
}

export function readPlanInForce(file = BGP_SERVICE_FILE): PlanInForce | undefined {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as PlanInForce;
  } catch {
    return undefined; // another program's BGP, or none yet
  }
}

/** Reads the host once; what it returns answers for any session. */
export function readSurroundings(): (session: BirdSession) => SessionSurroundings {
  using kernel = openRtnetlink();
  const here = new Set(kernel.addresses.list().map(({ address }) => address as string));
  const peers = new Map(readPlanInForce()?.peers.map((peer) => [peer.name, peer]));
  const errors = readSessionErrors();
  const signatures = signatureCounts(readFileIfExists("/proc/thread-self/net/netstat") ?? "");
  return ({ name, neighbor, bgpState, since }) => {
    const peer = peers.get(name);
    const error = errors.get(name);
    const heard = error === undefined || isOlderThanState(error, since) ? undefined : error.error;
    return {
      ...(peer?.sourceAddress && { source: { address: peer.sourceAddress, isHere: here.has(peer.sourceAddress) } }),
      ...(neighbor === undefined || bgpState === "Established" ? {} : wayTo(neighbor)),
      hasPassword: peer?.hasPassword,
      signatures,
      heard,
    };
  };
}

function wayTo(neighbor: IpAddress): Pick<SessionSurroundings, "hasRoute" | "nextDoor"> {
  using kernel: Rtnetlink = openRtnetlink();
  const route = kernel.routes.lookup(neighbor);
  if (route === undefined) return { hasRoute: false };
  const { link, gateway, source } = route;
  const name = kernel.links.list().find(({ index }) => index === link)?.name;
  const isNextDoor = gateway === undefined && source !== undefined && name !== undefined;
  return { hasRoute: true, ...(isNextDoor && { nextDoor: { link: name, address: source } }) };
}

/** The kernel's TCP counters: a line of names, then a line of values. */
export function signatureCounts(text: string): SessionSurroundings["signatures"] {
  const lines = text.split("\n").filter((line) => line.startsWith("TcpExt:"));
  const names = lines[0]?.split(" ") ?? [];
  const values = lines[1]?.split(" ") ?? [];
  const count = (name: string) => Number(values[names.indexOf(name)]);
  if (!names.includes("TCPMD5Failure")) return undefined;
  return {
    missing: count("TCPMD5NotFound"),
    unexpected: count("TCPMD5Unexpected"),
    wrong: count("TCPMD5Failure"),
  };
}
