// The node-local service as a plugin starts it (`start-service.ts`) where no agent answers: for one network's datastore,
// until nobody has asked for a while, an agent comes, or what it was started from has changed. Its network configuration
// is its standard input; descriptor 3 is the right to stand in.
import { readFileSync, writeFileSync } from "node:fs";
import { chooseDatastore, openDatastore } from "../datastore/index.ts";
import {
  exitNow,
  leaveStandardInput,
  PlaceTaken,
  readStandardInput,
  StandIn,
  writeStandardError,
} from "../kernel/index.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { filesOfAccess } from "./access.ts";
import { apiConfig } from "./api-config.ts";
import { Belongings, executablePath } from "./belongings.ts";
import { Idleness } from "./idleness.ts";
import { confKubernetes } from "./kubernetes-client.ts";
import { fileLogger } from "./log.ts";
import { type NetConf, parseNetConf } from "./net-conf.ts";
import type { JsonObject } from "./request.ts";
import { sameScope } from "./scope.ts";
import { startCniService, withServiceRates } from "./service.ts";
import { wantsService } from "./wants-service.ts";

/** Where the plugin puts the right to stand in. */
export const STAND_IN_FD = 3;
const LOOK_INTERVAL_MS = 1000;
/** Whose own calls have paused for so long makes room for a service that those of others can have. */
const ROOM_AFTER_MS = 1000;
/** The plugin has just reached the same datastore. */
const MOST_START_MS = 30_000;

/** Does not come back: connections that are kept open need not be waited for. */
export async function serveOnDemand(path: string, idleSeconds: number): Promise<number> {
  const standIn = StandIn.adopt(path, STAND_IN_FD) ?? StandIn.claim(path);
  if (standIn === undefined) return 0; // another one has come first
  let code = 0;
  let log: Logger | undefined;
  try {
    const conf = readConf();
    log = logOf(conf);
    beOrdinary();
    await serve({ path, idleSeconds, conf, log });
  } catch (error) {
    if (!(error instanceof PlaceTaken)) {
      log?.error("The CNI service cannot run", { error: describeError(error) });
      writeStandardError(`calico cni-service: ${describeError(error)}\n`); // which a plugin has shut
      code = 1;
    }
  }
  standIn[Symbol.dispose]();
  return exitNow(code);
}

function readConf(): NetConf {
  const text = readStandardInput();
  leaveStandardInput();
  try {
    return parseNetConf(JSON.parse(text) as JsonObject);
  } catch (error) {
    throw new Error("standard input holds no network configuration", { cause: error });
  }
}

const now = (): Date => new Date();
const logOf = (conf: NetConf): Logger => fileLogger(conf.log, now);

interface Started {
  readonly path: string;
  readonly idleSeconds: number;
  readonly conf: NetConf;
  readonly log: Logger;
}

async function serve({ path, idleSeconds, conf, log }: Started): Promise<void> {
  const end = Promise.withResolvers<string>();
  const signals = ["SIGTERM", "SIGINT"] as const;
  for (const signal of signals) process.once(signal, () => end.resolve(signal));
  const tooLate = setTimeout(() => exitNow(1), MOST_START_MS);
  const config = chooseDatastore(apiConfig(conf, {}), { env: {} });
  // As they are before they are read: what changes meanwhile has changed.
  const belongings = new Belongings(
    executablePath(),
    filesOfAccess(conf, {}),
    config.type === "sqlite" ? config.path : undefined,
  );
  const store = await openDatastore(withServiceRates(config), { mustExist: true });
  clearTimeout(tooLate);
  const idleness = new Idleness(idleSeconds, () => performance.now());
  const isSame = sameScope(conf);
  const kubernetes = confKubernetes(conf);
  let answered = 0;
  const service = startCniService({
    store,
    log,
    path,
    env: {},
    ...(kubernetes === undefined ? {} : { kubernetes }),
    standIn: {
      scope: (asked) => {
        const changed = belongings.whatChanged();
        if (changed !== undefined) end.resolve(changed);
        const other = changed ?? isSame(asked);
        if (other !== undefined && wantsService(asked.request, asked.conf) && idleness.lasts(ROOM_AFTER_MS))
          end.resolve(`makes room: ${other}`);
        return other;
      },
      logOf,
      // A runtime asks for the status all the time, whether there are pods or not.
      attend: ({ command, containerId }, asked) => {
        answered++;
        logOf(asked).debug("The CNI service was asked", { command, containerID: containerId, pid: process.pid });
        return idleness.attend(command === "STATUS" ? 0 : asked.serviceIdleSeconds);
      },
      onReplaced: () => end.resolve("another process answers at its socket"),
    },
  });
  log.info("The CNI service listens", { path, datastore: store.name, idleSeconds, pid: process.pid });
  const look = setInterval(() => {
    const why = belongings.whatChanged() ?? (idleness.isOver ? "nobody asks" : undefined);
    if (why !== undefined) end.resolve(why);
  }, LOOK_INTERVAL_MS);
  const why = await end.promise;
  clearInterval(look);
  await service[Symbol.asyncDispose]();
  log.info("The CNI service ends", { why, answered, pid: process.pid });
  await store.close();
}

/** Container runtimes are spared when memory is short, and so are those they start: for us there is a substitute. */
function beOrdinary(): void {
  const file = "/proc/self/oom_score_adj";
  try {
    if (Number(readFileSync(file, "utf8")) < 0) writeFileSync(file, "0");
  } catch {
    // then it is spared too
  }
}
