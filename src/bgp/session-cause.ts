// Why a session is not established, in words that say what to look at.
import type { BirdSession } from "./bird/replies.ts";

const CAUSES: readonly (readonly [RegExp, (session: BirdSession) => string])[] = [
  [
    /Bad peer AS/i,
    (s) =>
      `the AS numbers do not match: we are ${s.localAs ?? "?"} and expect ${s.neighborAs ?? "?"}; compare with what the other side says`,
  ],
  [/Connection refused/i, () => "nobody listens on BGP's port there, or a firewall says so"],
  [/No route to host|Network is unreachable|no route/i, () => "this host has no route to it"],
  [/timed out/i, () => "it does not answer: a firewall drops it, the host is down, or only one side has a password"],
  [/Hold timer expired/i, () => "the other side fell silent: packets are lost, or it hangs"],
  [
    /Connection reset|Connection closed/i,
    () => "the other side hung up: it does not expect us from this address, or it was reconfigured",
  ],
  [
    /Cannot assign requested address/i,
    () => "our source address is on none of this host's interfaces: the Node carries an address it does not have",
  ],
  [/MD5|authentication/i, () => "the passwords differ"],
  [
    /Invalid (router|BGP) ID|BGP identifier/i,
    () => "both sides have one router id: set CALICO_ROUTER_ID on one of them",
  ],
  [/Connection collision/i, () => "both sides connected at once: it will be settled shortly"],
  [/Administrative (shutdown|reset)|Cease/i, () => "the other side closed the session on purpose"],
  [/Unacceptable hold time/i, () => "the hold times do not fit"],
];

/** Undefined for a session that is up. */
export function sessionCause(session: BirdSession): string | undefined {
  if (session.bgpState === "Established") return undefined;
  const said = session.lastError ?? session.info;
  for (const [pattern, explain] of CAUSES) if (pattern.test(said)) return explain(session);
  switch (session.bgpState) {
    case "Passive":
      return "we wait for the other side to connect, and it has not";
    case "Active":
    case "Connect":
      return "no connection yet: if this lasts, it is not reachable from our address, or does not expect us";
    case "OpenSent":
    case "OpenConfirm":
      return "connected, still talking about terms";
    default:
      return session.state === "down" ? "switched off" : "it waits before trying again";
  }
}
