// Removes everything that Felix programmed from the kernel of a host that leaves the cluster. The settings in the
// environment determine the names of interfaces and chains.
import { hostname } from "node:os";
import { removeDataplane } from "../dataplane/index.ts";
import type { Logger } from "../lib/log/log.ts";
import { ConfigEngine, type Environment, environmentLayer } from "./config/index.ts";
import { localHostFiles } from "./load-config.ts";

export async function removeFromKernel(
  options: { readonly env: Environment; readonly logger: Logger; readonly withBird: boolean },
  signal: AbortSignal,
): Promise<void> {
  const { env, logger, withBird } = options;
  const engine = new ConfigEngine(localHostFiles(env), { hostname: hostname() });
  engine.update({ "environment variable": environmentLayer(env) });
  await removeDataplane({ parameters: engine.config, logger, withBird }, signal);
}
