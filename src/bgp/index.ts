export { birdConfiguration, isUsablePassword, type RenderInputs } from "./bird/configuration.ts";
export { BgpCollector } from "./collect.ts";
export { type LocalInputs, NoSuchNode, plan } from "./plan.ts";
export type * from "./plan-types.ts";
export { hashedRouterId, routerIdOf } from "./router-id.ts";
export { asNumberOf, type LocalWorkload } from "./sessions.ts";
export { type BgpNode, type BgpPeer, type BgpState, matchesNode, type Problem, type SecretRef } from "./state.ts";
export { BIRD_SOCKETS, BirdControl, BirdRefused, BirdUnreachable, connectBird } from "./bird/control.ts";
export {
  type BirdProtocol,
  type BirdRoute,
  type BirdSession,
  type BirdStatus,
  bgpSessions,
  parseProtocols,
  parseRoutes,
  parseStatus,
} from "./bird/replies.ts";
export { type Bird, birdProcess } from "./service/install.ts";
export { BgpService, type BgpServiceOptions, CONFIG_FILE } from "./service/service.ts";
export type { PasswordSource } from "./service/secrets.ts";
export { asMismatch, sessionCause, type SessionSurroundings } from "./session-cause.ts";
