// Explains why a session is not established. BIRD reports only its last error, which is often a consequence: a peer that
// rejected the AS number closes later connections immediately. Earlier errors from BIRD's log and the host's addresses, routes
// and TCP counters are better evidence.
import type { BirdSession } from "./bird/replies.ts";

/** Evidence from sources other than BIRD's status; each field may be missing. */
export interface SessionEvidence {
  /** The source address of the session, and whether an interface of this host has it. */
  readonly source?: { readonly address: string; readonly isLocal: boolean };
  /** Whether the kernel has a route to the peer. */
  readonly hasRoute?: boolean;
  /** For a directly connected peer: the interface, and this host's address there. */
  readonly connectedLink?: { readonly link: string; readonly address: string };
  readonly hasPassword?: boolean;
  /** Number of TCP segments that this host dropped because of their signatures (RFC 2385). */
  readonly signatures?: { readonly missing: number; readonly unexpected: number; readonly wrong: number };
  /** The session's last protocol error in BIRD's log, such as `Bad peer AS: 65100`. */
  readonly loggedError?: string;
}

type Explain = (session: BirdSession, evidence: SessionEvidence, error: string) => string;

const PROTOCOL_ERRORS: readonly (readonly [RegExp, Explain])[] = [
  [
    /Bad peer AS/i,
    (s, _, error) => {
      const actual = actualAs(error);
      return actual === undefined
        ? `AS numbers do not match: this node has ${s.localAs ?? "?"} and expects ${s.neighborAs ?? "?"}; compare with the peer's configuration`
        : `AS numbers do not match: this node expects ${s.neighborAs ?? "?"}, but the peer has ${actual}; correct asNumber`;
    },
  ],
  [/Hold timer expired/i, () => "hold timer expired: the peer stopped responding (packet loss, or it hangs)"],
  [
    /Invalid (router|BGP) ID|BGP identifier/i,
    () => "both sides have the same router ID: set CALICO_ROUTER_ID on one of them",
  ],
  [/Unacceptable hold time/i, () => "the peer rejected this node's hold time"],
  [/MD5|authentication/i, () => "the passwords differ"],
  [/Connection collision/i, () => "both sides connected at the same time; BGP resolves this within seconds"],
  [
    /Administrative (shutdown|reset)|Cease|deconfigured/i,
    () => "the peer closed the session: it was disabled or reconfigured there",
  ],
];

const SOCKET_ERRORS: readonly (readonly [RegExp, Explain])[] = [
  [
    /No listening socket/i,
    () =>
      "BIRD cannot listen on this host: another program uses the BGP port (ss -ltnp 'sport = :179' shows it); stop that program, or set another port (BGPConfiguration spec.listenPort)",
  ],
  [/Cannot assign requested address/i, () => "wrong source address: no interface of this host has the Node's address"],
  [
    /Connection refused/i,
    () => "connection refused: nothing listens on the peer's BGP port, or a firewall rejects the connection",
  ],
  [/Network is unreachable/i, () => "no route: this host has no route to the peer"],
  [
    /No route to host/i,
    (_, { hasRoute }) =>
      hasRoute === true
        ? "no response on the local network: a route exists, but the peer (or the gateway) is down or not on that network"
        : "no route: this host has no route to the peer",
  ],
  [
    /timed out/i,
    (_, { hasPassword }) =>
      hasPassword === true
        ? "no response: the password differs or is missing on the peer, a firewall drops packets, or the peer is down"
        : "no response: a firewall drops packets, the peer is down, or it requires a password",
  ],
  [
    /Connection reset|Connection closed/i,
    (_, { source }) =>
      `the peer closed the connection: it does not expect connections from ${source === undefined ? "this address" : source.address} (wrong source address), or it delays new connections after an error`,
  ],
];

/** The peer's AS number. In an error that the peer sent, the number is that of this node. */
const actualAs = (error: string): number | undefined => {
  const [, number] = /^(?!.*Received).*Bad peer AS: (\d+)/i.exec(error) ?? [];
  return number === undefined ? undefined : Number(number);
};

/** Set if the AS numbers prevent the session; `actual` is the peer's AS number, if known. */
export function asMismatch(
  session: BirdSession,
  { loggedError = "" }: SessionEvidence = {},
): { readonly actual: number | undefined } | undefined {
  const errors = [session.lastError ?? session.info, loggedError].filter((text) => /Bad peer AS/i.test(text));
  if (session.bgpState === "Established" || errors.length === 0) return undefined;
  return { actual: errors.map(actualAs).find((number) => number !== undefined) };
}

/** Returns undefined for an established session. */
export function sessionCause(session: BirdSession, evidence: SessionEvidence = {}): string | undefined {
  if (session.bgpState === "Established") return undefined;
  const { source } = evidence;
  if (source !== undefined && !source.isLocal)
    return `wrong source address: the Node has ${source.address}, but no interface of this host has it`;
  const lastError = session.lastError ?? session.info;
  const loggedError = evidence.loggedError ?? "";
  // The logged error has more detail than BIRD's status, such as the AS number.
  for (const text of [lastError, loggedError])
    for (const [pattern, explain] of PROTOCOL_ERRORS)
      if (pattern.test(text)) return explain(session, evidence, pattern.test(loggedError) ? loggedError : text);
  const signature = signatureCause(session, evidence);
  if (signature !== undefined) return signature;
  for (const [pattern, explain] of SOCKET_ERRORS)
    if (pattern.test(lastError)) return explain(session, evidence, lastError);
  switch (session.bgpState) {
    case "Passive":
      return "waiting for the peer to connect";
    case "Active":
    case "Connect":
      if (evidence.hasRoute === false) return "no route: this host has no route to the peer";
      return source !== undefined &&
        evidence.connectedLink !== undefined &&
        evidence.connectedLink.address !== source.address
        ? `probably a wrong source address: sessions use the Node's address ${source.address}, but the peer is directly connected to ${evidence.connectedLink.link}, where this host has ${evidence.connectedLink.address}; calicoctl doctor shows the setting`
        : "not connected yet: if this persists, the peer is unreachable from the source address, does not expect this node, or requires another password";
    case "OpenSent":
    case "OpenConfirm":
      return "connected; the session is being negotiated";
    default:
      return session.state === "down" ? "disabled" : "waiting before the next connection attempt";
  }
}

/** The kernel drops packets with wrong signatures, so neither BIRD sees them: only the kernel's counters show this cause. */
function signatureCause(session: BirdSession, { hasPassword, signatures }: SessionEvidence): string | undefined {
  const isSilent = /timed out/i.test(session.lastError ?? "") || session.lastError === undefined;
  if (signatures === undefined || !isSilent || !["Active", "Connect", "Passive"].includes(session.bgpState))
    return undefined;
  const dropped = (count: number) => `(this host dropped ${count} such ${count === 1 ? "packet" : "packets"})`;
  if (hasPassword !== false && signatures.wrong > 0)
    return `password: the two sides have different passwords ${dropped(signatures.wrong)}`;
  if (hasPassword !== false && signatures.missing > 0)
    return `password: this node has a password, but the peer sends none ${dropped(signatures.missing)}`;
  if (hasPassword !== true && signatures.unexpected > 0)
    return `password: the peer has a password, but this node has none ${dropped(signatures.unexpected)}`;
  return undefined;
}
