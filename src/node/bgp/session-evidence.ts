// Collects evidence about BGP sessions from sources other than BIRD: addresses, routes and counters of the kernel, and the
// files of the BGP service and of the error log.
import { readFileSync } from "node:fs";
import type { BirdSession, SessionEvidence } from "../../bgp/index.ts";
import { openRtnetlink, type Rtnetlink } from "../../kernel/index.ts";
import type { IpAddress } from "../../lib/ip/ip.ts";
import { readFileIfExists } from "../../lib/files/replace-file.ts";
import { BGP_SERVICE_FILE } from "../supervisor/children.ts";
import { isOlderThanState, readSessionErrors } from "./session-errors.ts";

/** Content of the file that the BGP service writes when it has applied a plan. */
export interface ActivePlan {
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

export function readActivePlan(file = BGP_SERVICE_FILE): ActivePlan | undefined {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as ActivePlan;
  } catch {
    return undefined; // no plan yet, or the BGP service is not that of calico-ts
  }
}

/** Reads the host's state once. The returned function looks up the evidence of a session. */
export function readSessionEvidence(): (session: BirdSession) => SessionEvidence {
  using kernel = openRtnetlink();
  const localAddresses = new Set(kernel.addresses.list().map(({ address }) => address as string));
  const peers = new Map(readActivePlan()?.peers.map((peer) => [peer.name, peer]));
  const errors = readSessionErrors();
  const signatures = signatureCounts(readFileIfExists("/proc/thread-self/net/netstat") ?? "");
  return ({ name, neighbor, bgpState, since }) => {
    const peer = peers.get(name);
    const error = errors.get(name);
    const loggedError = error === undefined || isOlderThanState(error, since) ? undefined : error.error;
    return {
      ...(peer?.sourceAddress && {
        source: { address: peer.sourceAddress, isLocal: localAddresses.has(peer.sourceAddress) },
      }),
      ...(neighbor === undefined || bgpState === "Established" ? {} : routeTo(neighbor)),
      hasPassword: peer?.hasPassword,
      signatures,
      loggedError,
    };
  };
}

function routeTo(neighbor: IpAddress): Pick<SessionEvidence, "hasRoute" | "connectedLink"> {
  using kernel: Rtnetlink = openRtnetlink();
  const route = kernel.routes.lookup(neighbor);
  if (route === undefined) return { hasRoute: false };
  const { link, gateway, source } = route;
  const name = kernel.links.list().find(({ index }) => index === link)?.name;
  const isConnected = gateway === undefined && source !== undefined && name !== undefined;
  return { hasRoute: true, ...(isConnected && { connectedLink: { link: name, address: source } }) };
}

/** The kernel's TCP counters: a line of names, then a line of values. */
export function signatureCounts(text: string): SessionEvidence["signatures"] {
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
