// Parses BIRD's replies: protocols with their BGP sessions, BIRD's status, and routes.
import { type IpAddress, tryParseAddress } from "../../lib/ip/ip.ts";
import type { ReplyLine } from "./control.ts";

const BIRD_CODE = {
  version: 1000,
  protocol: 1002,
  detail: 1006,
  route: 1007,
  status: 1011,
  isUp: 13,
  restarting: 24,
} as const;

export interface BirdProtocol {
  readonly name: string;
  /** `BGP`, `Kernel`, `Static`, … */
  readonly proto: string;
  readonly table: string;
  /** `up`, `start`, `down`, `stop`, … */
  readonly state: string;
  readonly since: string;
  /** The last column; for BGP, the state and the last error. */
  readonly info: string;
  /** Labelled lines, such as `Neighbor address`. */
  readonly details: ReadonlyMap<string, string>;
}

export type BgpState =
  | "Idle"
  | "Connect"
  | "Active"
  | "OpenSent"
  | "OpenConfirm"
  | "Established"
  | "Close"
  | "Passive"
  | "Down";

export interface BirdSession {
  readonly name: string;
  readonly kind: "mesh" | "global" | "node" | "localWorkload" | "other";
  readonly neighbor: IpAddress | undefined;
  readonly port: number | undefined;
  readonly state: string;
  readonly since: string;
  readonly bgpState: BgpState | "";
  readonly info: string;
  readonly lastError: string | undefined;
  readonly neighborAs: number | undefined;
  readonly localAs: number | undefined;
  readonly imported: number;
  readonly exported: number;
  readonly updatesReceived: number;
  /** True after a restart until the peer has sent its routes again. Until then, BIRD keeps the kernel's routes unchanged. */
  readonly isRecoveryPending: boolean;
}

/** Parses the reply to `show protocols` or `show protocols all`. Other lines are ignored. */
export function parseProtocols(lines: readonly ReplyLine[]): readonly BirdProtocol[] {
  const protocols: (BirdProtocol & { readonly details: Map<string, string> })[] = [];
  for (const { code, text } of lines) {
    if (code === BIRD_CODE.protocol) {
      const row = parseRow(text);
      if (row !== undefined) protocols.push(row);
    } else if (code === BIRD_CODE.detail) {
      const [, label, value] = /^\s*([A-Z][\w -]*?):\s+(.*)$/.exec(text) ?? [];
      const details = protocols.at(-1)?.details;
      if (label !== undefined && value !== undefined && details?.has(label) === false)
        details.set(label, value.trimEnd());
    }
  }
  return protocols;
}

/** Parses six columns. The time may contain a space, and the last column may be empty. */
function parseRow(text: string) {
  const [, name, proto, table, state, since, info] =
    /^(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\d{4}-\d{2}-\d{2}(?: \d{2}:\d{2}:\d{2}(?:\.\d+)?)?|\S+)\s*(.*)$/.exec(text) ??
    [];
  if (name === undefined || proto === undefined || table === undefined || state === undefined || since === undefined)
    return undefined;
  return { name, proto, table, state, since, info: (info ?? "").trimEnd(), details: new Map<string, string>() };
}

const KINDS = { Mesh_: "mesh", Global_: "global", Node_: "node", Local_Workload_: "localWorkload" } as const;

/** Returns the BGP sessions. If BIRD does not report the peer's address, it is parsed from the protocol name. */
export function bgpSessions(protocols: readonly BirdProtocol[]): readonly BirdSession[] {
  return protocols
    .filter(({ proto }) => proto === "BGP")
    .map((protocol) => {
      const { details } = protocol;
      const prefix = (Object.keys(KINDS) as (keyof typeof KINDS)[]).find((each) => protocol.name.startsWith(each));
      const named = prefix === undefined ? undefined : parsePeerName(protocol.name.slice(prefix.length));
      const [word = "", ...rest] = protocol.info.split(/\s+/);
      const number = (label: string) => (details.has(label) ? Number(details.get(label)) : undefined);
      const [, imported = "0", exported = "0"] =
        /^(\d+) imported.*?(\d+) exported/.exec(details.get("Routes") ?? "") ?? [];
      return {
        name: protocol.name,
        kind: prefix === undefined ? "other" : KINDS[prefix],
        neighbor: tryParseAddress(details.get("Neighbor address") ?? "") ?? named?.address,
        port: named?.port ?? number("Neighbor port"),
        state: protocol.state,
        since: protocol.since,
        bgpState: (details.get("BGP state") ?? word) as BirdSession["bgpState"],
        info: [word, ...rest].join(" ").trim(),
        lastError: details.get("Last error") ?? (rest.length === 0 ? undefined : rest.join(" ")),
        neighborAs: number("Neighbor AS"),
        localAs: number("Local AS"),
        imported: Number(imported),
        exported: Number(exported),
        updatesReceived: Number(/^\d+/.exec(details.get("Import updates") ?? "")?.[0] ?? 0),
        isRecoveryPending: /\bpending\b/.test(details.get("GR recovery") ?? ""),
      };
    });
}

/** Parses `10_0_0_1`, `fd00__1`, or either followed by `_port_N`. */
function parsePeerName(text: string): { readonly address: IpAddress | undefined; readonly port: number | undefined } {
  const [, body = text, port] = /^(.*?)(?:_port_(\d+))?$/.exec(text) ?? [];
  const address = tryParseAddress(body.replaceAll("_", ".")) ?? tryParseAddress(body.replaceAll("_", ":"));
  return { address, port: port === undefined ? undefined : Number(port) };
}

export interface BirdStatus {
  readonly version: string;
  readonly routerId: string;
  readonly serverTime: string;
  readonly lastReboot: string;
  readonly lastReconfiguration: string;
  /** A graceful restart is in progress: not all peers have sent their routes. */
  readonly isRecovering: boolean;
}

/** Parses the reply to `show status`. */
export function parseStatus(lines: readonly ReplyLine[]): BirdStatus {
  const after = (pattern: RegExp): string => {
    for (const { text } of lines) {
      const [, found] = pattern.exec(text) ?? [];
      if (found !== undefined) return found.trim();
    }
    return "";
  };
  return {
    version: after(/^BIRD v?(\S+)/),
    routerId: after(/Router ID is (\S+)/),
    serverTime: after(/Current server time is (.+)/),
    lastReboot: after(/Last reboot on (.+)/),
    lastReconfiguration: after(/Last reconfiguration on (.+)/),
    isRecovering: lines.some(({ code, text }) => code === BIRD_CODE.restarting && /recovery/i.test(text)),
  };
}

export interface BirdRoute {
  readonly destination: string;
  /** Selected by BIRD, and exported to the kernel if the kernel filter accepts it. */
  readonly isBest: boolean;
  readonly protocol: string;
  readonly gateway: string | undefined;
  /** Or `blackhole`, `unreachable`, `prohibit`. */
  readonly interface: string | undefined;
}

/** Parses the reply to `show route`. Further routes of a destination do not repeat it; each next hop is a route. */
export function parseRoutes(lines: readonly ReplyLine[]): readonly BirdRoute[] {
  const routes: BirdRoute[] = [];
  let destination = "";
  let current: { readonly isBest: boolean; readonly protocol: string } | undefined;
  for (const { code, text } of lines) {
    if (code !== BIRD_CODE.route || text.startsWith("Table ")) continue;
    const [, net, type, protocol, star] =
      /^(\S*)\s+(unicast|blackhole|unreachable|prohibit)\s+\[([^\s\]]+)(?:\s[^\]]*)?\]( \*)?/.exec(text) ?? [];
    if (type !== undefined && protocol !== undefined) {
      if (net !== undefined && net !== "") destination = net;
      current = { isBest: star !== undefined, protocol };
      if (type !== "unicast") routes.push({ destination, ...current, gateway: undefined, interface: type });
      continue;
    }
    if (current === undefined) continue;
    const [, gateway, via, device] = /^\s+(?:via (\S+) on (\S+)|dev (\S+))/.exec(text) ?? [];
    if (via !== undefined || device !== undefined)
      routes.push({ destination, ...current, gateway, interface: via ?? device });
  }
  return routes;
}
