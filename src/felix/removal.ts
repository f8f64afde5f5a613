// What a host that leaves the cluster does with the kernel: everything Felix wrote goes, by the names its settings say.
import { hostname } from "node:os";
import { removeDataplane } from "../dataplane/index.ts";
import type { Logger } from "../lib/log.ts";
import { ConfigEngine, type Environment, environmentLayer } from "./config/index.ts";
import { localSurroundings } from "./load-config.ts";

export async function removeFromKernel(
  options: { readonly env: Environment; readonly logger: Logger; readonly withBird: boolean },
  signal: AbortSignal,
): Promise<void> {
  const { env, logger, withBird } = options;
  const engine = new ConfigEngine(localSurroundings(env), { hostname: hostname() });
  engine.update({ "environment variable": environmentLayer(env) });
  await removeDataplane({ parameters: engine.config, logger, withBird }, signal);
}
