// Starting the node-local service where no agent answers and the call is one for it (`wants-service.ts`): the last thing a
// plugin does, when its own answer is printed. What it starts has nothing of the caller: no session, no descriptor, no folder,
// nothing of its environment but where programs lie. Many plugins at once start one.
import { BUILD } from "../lib/build.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { isListening, memoryFile, StandIn } from "../kernel/index.ts";
import { accessOf, isRelative } from "./access.ts";
import type { NetConf } from "./net-conf.ts";
import type { CniRequest, Environment } from "./request.ts";
import { notForServices } from "./scope.ts";
import { socketNamed } from "./service-client.ts";
import { seesProcesses } from "./sight.ts";

/** Never fails and never waits: without a service the next call is as this one was. */
export function startService(request: CniRequest, conf: NetConf, env: Environment, log: Logger): void {
  try {
    const why = tryStart(request, conf, env);
    if (why !== undefined) log.debug("No CNI service was started", { why });
  } catch (error) {
    log.debug("The CNI service could not be started", { error: describeError(error) });
  }
}

function tryStart(request: CniRequest, conf: NetConf, env: Environment): string | undefined {
  const { config } = request;
  const path = socketNamed(config);
  if (!path.startsWith("/")) return "the socket's path does not begin at the root";
  const useless = notForServices({ request, conf });
  if (useless !== undefined) return useless;
  if (BUILD.isSource) return "this is no executable that could be one";
  if (accessOf(conf, env) !== accessOf(conf, {})) return "part of how the datastore is reached is in the environment";
  if (isRelative(conf, {})) return "a file of its datastore is named from the plugin's folder";
  if (!seesProcesses()) return "/proc shows other processes: who asks could not be told";
  if (isListening(path)) return "one is there";
  const standIn = StandIn.claim(path);
  if (standIn === undefined) return "one is being started";
  try {
    using input = memoryFile("calico-cni", JSON.stringify(config));
    const command = ["cni-service", "--idle", String(conf.serviceIdleSeconds), "--socket", path];
    const child = Bun.spawn([process.execPath, ...command], {
      argv0: "calico",
      stdio: [input.fd, "ignore", "ignore", standIn.fd],
      cwd: "/",
      env: { ...placesOf(env), ...BRIEF_LIFE },
      detached: true,
    });
    child.unref();
    return undefined; // the right is the child's now, and goes with this process's end
  } catch (error) {
    standIn[Symbol.dispose]();
    throw error;
  }
}

/** In so few calls the runtime's second compiler takes more time than its code saves: a quarter of all. */
const BRIEF_LIFE = { BUN_JSC_useDFGJIT: "0" };

/** For a program that a kubeconfig names. */
function placesOf(env: Environment): Record<string, string> {
  const named = ["PATH", "HOME"].map((name) => [name, env[name]] as const);
  return Object.fromEntries(named.filter(([, value]) => value !== undefined)) as Record<string, string>;
}
