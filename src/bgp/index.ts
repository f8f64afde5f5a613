export { birdConfiguration } from "./bird/configuration.ts";
export { BgpCollector } from "./collect.ts";
export { type LocalInputs, NoSuchNode, plan } from "./plan.ts";
export type * from "./plan-types.ts";
export { routerIdOf } from "./router-id.ts";
export { asNumberOf } from "./sessions.ts";
export type { BgpState, Problem } from "./state.ts";
export { BIRD_SOCKETS, BirdControl, BirdUnreachable, connectBird } from "./bird/control.ts";
export {
  type BirdRoute,
  type BirdSession,
  type BirdStatus,
  bgpSessions,
  parseProtocols,
  parseRoutes,
  parseStatus,
} from "./bird/replies.ts";
export { type Bird, birdProcess } from "./service/configuration-file.ts";
export { BgpService, CONFIG_FILE } from "./service/service.ts";
export type { PasswordSource } from "./service/secrets.ts";
export {
  type HostInterface,
  interfaceWithAddress,
  isPeerOf,
  type OtherNetwork,
  otherNetworks,
} from "./other-networks.ts";
export { asMismatch, sessionCause, type SessionEvidence } from "./session-cause.ts";
