// Runs the CNI plugins `calico` and `calico-ipam` as programs: reads environment and standard input, and prints JSON. Every pod
// start waits for this, so only the modules that a command needs are loaded, and the process exits without closing connections.
import { readStandardInput, writeStandardError, writeStandardOutput } from "../kernel/index.ts";
import { asCniError, CniError, errorReply, IO_FAILURE, NOT_AVAILABLE, TRY_AGAIN_LATER } from "./error.ts";
import { parseNetConf } from "./request/net-conf.ts";
import { type CniProgram, type CniRequest, parseCommand, parseRequest } from "./request/request.ts";
import type { ServiceFailure } from "./service/client.ts";
import { type MarkStep, noTimes } from "./step-times.ts";

interface PluginInputs {
  /** Standard input, if it was already read. */
  readonly input?: string;
  /** Records the end of each step. */
  readonly mark?: MarkStep;
  /** Set if the node's service may have started this request, so that this process must not do the work. */
  readonly serviceFailure?: ServiceFailure;
}

export async function runPlugin(
  program: CniProgram,
  argv: readonly string[],
  inputs: PluginInputs = {},
): Promise<number> {
  const { input, mark = noTimes, serviceFailure } = inputs;
  const env = process.env;
  if (argv.length > 0) return (await import("./plugin-flags.ts")).runPluginFlags(program, argv);
  if ((env["CNI_COMMAND"] ?? "") === "") {
    const { aboutText } = await import("./version.ts");
    writeStandardError(aboutText(program));
    return 0;
  }
  let request: CniRequest | undefined;
  try {
    if (parseCommand(env["CNI_COMMAND"] ?? "") === "VERSION") {
      const { versionReply } = await import("./version.ts");
      print(versionReply(input ?? readInput()));
      return 0;
    }
    request = parseRequest(program, env, input ?? readInput());
    await runRequest(request, mark, serviceFailure);
    return 0;
  } catch (error) {
    print(JSON.stringify(errorReply(asCniError(error), request?.cniVersion)));
    return 1;
  }
}

async function runRequest(
  request: CniRequest,
  mark: MarkStep,
  serviceFailure: ServiceFailure | undefined,
): Promise<void> {
  const conf = parseNetConf(request.config);
  const now = (): Date => new Date();
  const { openLog } = await import("./log.ts");
  using log = openLog(conf.log, now);
  const { openContext } = await import("./open-context.ts");
  const { runCommand } = await import("./commands.ts");
  try {
    if (serviceFailure !== undefined) throw noServiceReply(request, serviceFailure);
    print(await runCommand(await openContext({ request, conf, env: process.env, log: log.logger, now, mark })));
  } catch (error) {
    log.logger.error(`${request.command} failed`, { containerID: request.containerId, error });
    throw error;
  }
  mark("result printed");
}

const noServiceReply = ({ command }: CniRequest, failure: ServiceFailure): CniError =>
  new CniError(
    command === "STATUS" ? NOT_AVAILABLE : TRY_AGAIN_LATER,
    failure === "silent"
      ? "the node's CNI service accepts connections but does not answer"
      : "the connection to the node's CNI service broke before it replied",
    failure === "silent"
      ? "is the node agent stopped or overloaded? the runtime may try again later"
      : "was the node agent restarted? the runtime may try again later",
  );

function readInput(): string {
  try {
    return readStandardInput();
  } catch (error) {
    throw new CniError(IO_FAILURE, "error reading from stdin", error instanceof Error ? error.message : undefined);
  }
}

const print = writeStandardOutput;
