// The command lines of calico-kube-controllers and of its probe.
import { type Command, commandsWith, type Grammar } from "../lib/command-line/command.ts";

const STATUS_FILE = "/status/status.json";

export const controllersGrammar = {
  flags: {
    "status-file": {
      type: "text",
      value: "FILE",
      default: STATUS_FILE,
      about: "file for the results of health checks",
    },
    "health-port": {
      type: "number",
      value: "PORT",
      min: 0,
      max: 65535,
      default: 0,
      about: "port for health checks over HTTP, where 0 is none",
    },
    version: { type: "switch", short: "v", about: "print the version" },
  },
} as const satisfies Grammar;

const command = commandsWith({});

export const CONTROLLERS: Command = command({
  name: "calico-kube-controllers",
  about: "Run the controllers that keep Calico resources consistent with Kubernetes.",
  details: "Other settings are environment variables and the resource KubeControllersConfiguration.",
  ...controllersGrammar,
  exitCodes: {
    1: "failed",
    129: "restart requested, if CALICO_KUBE_CONTROLLERS_INNER is 1",
    255: "stopped by a signal, as in Calico",
  },
  load: () => import("./program.ts"),
});

export const checkStatusGrammar = {
  flags: {
    r: { type: "switch", about: "check whether the controllers are ready" },
    l: { type: "switch", about: "check whether the controllers are alive; the same check as -r" },
    f: { type: "text", value: "FILE", default: STATUS_FILE, about: "file with the results of health checks" },
    v: { type: "switch", about: "print the version" },
  },
} as const satisfies Grammar;

export const CHECK_STATUS: Command = {
  ...command({
    name: "check-status",
    about: "Check the health of calico-kube-controllers, for probes.",
    usage: ["-r [-f=<FILE>]", "-l [-f=<FILE>]", "-v"],
    ...checkStatusGrammar,
    exitCodes: { 0: "healthy", 1: "not healthy" },
    examples: [{ line: "-r", about: "The readiness probe." }],
    load: () => import("./check-status.ts"),
  }),
  style: "go",
};
