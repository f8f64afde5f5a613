// Which calls, done where nobody answers at the service's socket, are worth a service for those that may follow.
import type { NetConf } from "./net-conf.ts";
import type { CniRequest } from "./request.ts";
import { socketNamed } from "./service-client.ts";

/** STATUS is asked all the time, whether there are pods or not. */
const STARTING: ReadonlySet<string> = new Set(["ADD", "DEL", "CHECK", "GC"]);

export const wantsService = ({ program, command, config }: CniRequest, conf: NetConf): boolean =>
  conf.serviceIdleSeconds > 0 && program === "calico" && STARTING.has(command) && socketNamed(config) !== "";
