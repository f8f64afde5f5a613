// Why a session is not established, in words that say what to look at. BIRD tells the last error only, and often that is
// a consequence: a neighbour that refused our AS number hangs up at once when we try again. What was heard before, and what
// the host knows of its addresses, routes and TCP signatures, says more.
import type { BirdSession } from "./bird/replies.ts";

/** What is known of a session beside BIRD's answer; all of it may be missing. */
export interface SessionSurroundings {
  /** The address we send from, and whether an interface of this host has it. */
  readonly source?: { readonly address: string; readonly isHere: boolean };
  /** Whether the kernel knows a way to the neighbour. */
  readonly hasRoute?: boolean;
  /** Where the neighbour is on a network of this host's: the interface, and our address there. */
  readonly nextDoor?: { readonly link: string; readonly address: string };
  readonly hasPassword?: boolean;
  /** TCP segments this host dropped for their signatures (RFC 2385). */
  readonly signatures?: { readonly missing: number; readonly unexpected: number; readonly wrong: number };
  /** The last protocol error that was told in this session: `Bad peer AS: 65100`. */
  readonly heard?: string;
}

type Explain = (session: BirdSession, around: SessionSurroundings, said: string) => string;

const PROTOCOL_ERRORS: readonly (readonly [RegExp, Explain])[] = [
  [
    /Bad peer AS/i,
    (s, _, said) => {
      const actual = actualAs(said);
      return actual === undefined
        ? `the AS numbers do not match: we are ${s.localAs ?? "?"} and expect ${s.neighborAs ?? "?"}, and the other side does not agree; compare with what it expects`
        : `the AS numbers do not match: we expect ${s.neighborAs ?? "?"} and it is ${actual}; correct asNumber`;
    },
  ],
  [/Hold timer expired/i, () => "the hold timer expired: the other side fell silent; packets are lost, or it hangs"],
  [
    /Invalid (router|BGP) ID|BGP identifier/i,
    () => "both sides have one router id: set CALICO_ROUTER_ID on one of them",
  ],
  [/Unacceptable hold time/i, () => "the hold times do not fit: the other side refuses ours"],
  [/MD5|authentication/i, () => "the passwords differ"],
  [/Connection collision/i, () => "both sides connected at once: it will be settled shortly"],
  [
    /Administrative (shutdown|reset)|Cease|deconfigured/i,
    () => "the other side closed the session on purpose: it was switched off or configured anew there",
  ],
];

const SOCKET_ERRORS: readonly (readonly [RegExp, Explain])[] = [
  [
    /No listening socket/i,
    () =>
      "BIRD cannot listen on this host: another program has BGP's port (ss -ltnp 'sport = :179' names it); end that one, or give ours another port (BGPConfiguration spec.listenPort)",
  ],
  [
    /Cannot assign requested address/i,
    () => "our source address is on none of this host's interfaces: the Node carries an address it does not have",
  ],
  [/Connection refused/i, () => "refused: nobody listens on BGP's port there, or a firewall says so"],
  [/Network is unreachable/i, () => "no route: this host knows no way to it"],
  [
    /No route to host/i,
    (_, { hasRoute }) =>
      hasRoute === true
        ? "no answer on the wire: there is a route, but the host (or the gateway to it) is down or not on that network"
        : "no route: this host knows no way to it",
  ],
  [
    /timed out/i,
    (_, { hasPassword }) =>
      hasPassword === true
        ? "it does not answer: the password differs or is missing there, a firewall drops it, or the host is down"
        : "it does not answer: a firewall drops it, the host is down, or it wants a password",
  ],
  [
    /Connection reset|Connection closed/i,
    (_, { source }) =>
      `the other side hung up: it does not expect us${source === undefined ? " from this address" : ` from ${source.address}`} (wrong source address), or it waits after an error`,
  ],
];

/** What the other side says of itself. In what it sends to us the number is ours, as it saw it. */
const actualAs = (said: string): number | undefined => {
  const [, number] = /^(?!.*Received).*Bad peer AS: (\d+)/i.exec(said) ?? [];
  return number === undefined ? undefined : Number(number);
};

/** Set when the AS numbers are what keeps a session down: the other side's own, where it was told. */
export function asMismatch(
  session: BirdSession,
  { heard = "" }: SessionSurroundings = {},
): { readonly actual: number | undefined } | undefined {
  const said = [session.lastError ?? session.info, heard].filter((text) => /Bad peer AS/i.test(text));
  if (session.bgpState === "Established" || said.length === 0) return undefined;
  return { actual: said.map(actualAs).find((number) => number !== undefined) };
}

/** Undefined for a session that is up. */
export function sessionCause(session: BirdSession, around: SessionSurroundings = {}): string | undefined {
  if (session.bgpState === "Established") return undefined;
  const { source } = around;
  if (source !== undefined && !source.isHere)
    return `wrong source address: the Node carries ${source.address}, which none of this host's interfaces has`;
  const said = session.lastError ?? session.info;
  const heard = around.heard ?? "";
  // What was heard has more to it than what is answered: the number of an AS, for one.
  for (const text of [said, heard])
    for (const [pattern, explain] of PROTOCOL_ERRORS)
      if (pattern.test(text)) return explain(session, around, pattern.test(heard) ? heard : text);
  const signature = signatureCause(session, around);
  if (signature !== undefined) return signature;
  for (const [pattern, explain] of SOCKET_ERRORS) if (pattern.test(said)) return explain(session, around, said);
  switch (session.bgpState) {
    case "Passive":
      return "we wait for the other side to connect, and it has not";
    case "Active":
    case "Connect":
      if (around.hasRoute === false) return "no route: this host knows no way to it";
      return source !== undefined && around.nextDoor !== undefined && around.nextDoor.address !== source.address
        ? `probably a wrong source address: we speak from the Node's ${source.address}, but it is a neighbour of ${around.nextDoor.link}, where this host is ${around.nextDoor.address}; calicoctl doctor says what to set`
        : "no connection yet: if this lasts, it is not reachable from our address, does not expect us, or wants another password";
    case "OpenSent":
    case "OpenConfirm":
      return "connected, still talking about terms";
    default:
      return session.state === "down" ? "switched off" : "it waits before trying again";
  }
}

/** With signatures that do not fit neither side ever sees a packet of the other: only the kernel knows. */
function signatureCause(session: BirdSession, { hasPassword, signatures }: SessionSurroundings): string | undefined {
  const isSilent = /timed out/i.test(session.lastError ?? "") || session.lastError === undefined;
  if (signatures === undefined || !isSilent || !["Active", "Connect", "Passive"].includes(session.bgpState))
    return undefined;
  const dropped = (count: number) => `(this host dropped ${count} such ${count === 1 ? "packet" : "packets"})`;
  if (hasPassword !== false && signatures.wrong > 0)
    return `password: the two sides have different ones ${dropped(signatures.wrong)}`;
  if (hasPassword !== false && signatures.missing > 0)
    return `password: we have one and the other side sends none ${dropped(signatures.missing)}`;
  if (hasPassword !== true && signatures.unexpected > 0)
    return `password: the other side has one and we have none ${dropped(signatures.unexpected)}`;
  return undefined;
}
