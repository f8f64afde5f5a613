// The command lines of calico-node, of `calico component` and of `calico health`.
import { type Command, commandsWith, type FlagTable, type Grammar } from "../lib/command-line/command.ts";
import { FELIX, felixGrammar } from "../felix/index.ts";

const command = commandsWith({});

const PARTS = {
  felix: { type: "switch", section: "Parts", about: "Felix, the agent that programs policy and routes of this host" },
  confd: { type: "switch", section: "Parts", about: "generate the configuration of BIRD" },
  startup: {
    type: "switch",
    section: "Parts",
    about: "set name, addresses, pools and default settings of the node, once",
  },
  "complete-startup": { type: "switch", section: "Parts", about: "report that the network of the node is available" },
  "allocate-tunnel-addrs": { type: "switch", section: "Parts", about: "allocate the addresses of tunnels" },
  "monitor-addresses": { type: "switch", section: "Parts", about: "watch the addresses of the host" },
  "monitor-token": { type: "switch", section: "Parts", about: "renew the credentials of the CNI plugin" },
  "status-reporter": { type: "switch", section: "Parts", about: "update CalicoNodeStatus resources" },
  "show-status": { type: "switch", section: "Parts", about: "print the state of the agent and of BGP sessions" },
  shutdown: { type: "switch", section: "Parts", about: "report that the network of the node is not available" },
  "hostpath-init": {
    type: "switch",
    section: "Parts",
    about: "create directories of the host for the user of the node",
  },
  "node-services": {
    type: "switch",
    section: "Parts",
    about: "everything except Felix, BIRD and its configuration, if another program runs those",
  },
  uninstall: { type: "switch", section: "Parts", about: "remove Calico from this host, but not the datastore" },
  init: { type: "switch", section: "Parts", about: "mount bpffs and cgroup2" },
  v: { type: "switch", section: "Parts", about: "print the version" },
} as const satisfies FlagTable;

const PROBES = {
  "felix-live": { type: "switch", section: "Probes", about: "Felix is alive" },
  "felix-ready": { type: "switch", section: "Probes", about: "Felix is ready" },
  "bird-live": { type: "switch", section: "Probes", about: "BIRD for IPv4 is alive" },
  "bird6-live": { type: "switch", section: "Probes", about: "BIRD for IPv6 is alive" },
  "bird-ready": { type: "switch", section: "Probes", about: "BIRD for IPv4 is ready" },
  "bird6-ready": { type: "switch", section: "Probes", about: "BIRD for IPv6 is ready" },
  "threshold-time": {
    type: "text",
    section: "Probes",
    value: "DURATION",
    default: "30s",
    about: "timeout of Felix's response; also how long after startup BIRD's peers are awaited",
  },
} as const satisfies FlagTable;

const CONFD_FOLDER = "/etc/calico/confd";
const { "config-file": configFile, dump, version } = felixGrammar.flags;

export const nodeGrammar = {
  flags: {
    ...PARTS,
    ...PROBES,
    "config-file": { ...configFile, section: "Options of -felix" },
    dump: { ...dump, section: "Options of -felix" },
    version: { ...version, section: "Options of -felix" },
    "confd-run-once": { type: "switch", section: "Options of other parts", about: "-confd: generate it once" },
    "confd-confdir": {
      type: "text",
      section: "Options of other parts",
      value: "DIR",
      default: CONFD_FOLDER,
      about: "-confd: directory of the configuration",
    },
    "confd-keep-stage-file": { type: "switch", isHidden: true, about: "has no effect" },
    "allocate-tunnel-addrs-run-once": {
      type: "switch",
      section: "Options of other parts",
      about: "-allocate-tunnel-addrs: allocate them once",
    },
    "run-once": { type: "switch", isHidden: true, about: "the same as -allocate-tunnel-addrs-run-once" },
    "best-effort": { type: "switch", section: "Options of other parts", about: "-init: exit with 0 after a failure" },
    purge: { type: "switch", section: "Options of other parts", about: "-uninstall: also delete the SQLite datastore" },
  },
} as const satisfies Grammar;

export const NODE: Command = {
  ...command({
    name: "calico-node",
    about: "Run the whole node, one of its parts, or probes.",
    exitCodes: { 0: "done, stopped by a signal, or the probe succeeded", 1: "failed, or the probe failed" },
    usage: ["", "PART [options]", "PROBE... [-threshold-time=<DURATION>]"],
    ...nodeGrammar,
    examples: [
      { line: "", about: "The whole node." },
      { line: "-felix-live -bird-live", about: "The liveness probe of Kubernetes." },
      { line: "-uninstall", about: "Remove Calico from this host." },
    ],
    load: () => import("./modes.ts"),
  }),
  style: "go",
};

export const confdGrammar = {
  flags: {
    "run-once": { type: "switch", about: "generate the configuration once" },
    confdir: { type: "text", value: "DIR", default: CONFD_FOLDER, about: "directory of the configuration" },
    "keep-stage-file": { type: "switch", isHidden: true, about: "has no effect" },
  },
} as const satisfies Grammar;

export const probeGrammar = { flags: PROBES } as const satisfies Grammar;
export const startupGrammar = {
  flags: { "complete-startup": { type: "switch", about: "then report that the network of the node is available" } },
} as const satisfies Grammar;
export const tunnelGrammar = {
  flags: {
    "run-once": { type: "switch", about: "allocate the addresses once" },
    "allocate-tunnel-addrs-run-once": { type: "switch", isHidden: true, about: "the same as -run-once" },
  },
} as const satisfies Grammar;
export const initGrammar = {
  flags: { "best-effort": { type: "switch", about: "exit with 0 after a failure" } },
} as const satisfies Grammar;
export const uninstallGrammar = {
  flags: { purge: { type: "switch", about: "also delete the SQLite datastore" } },
} as const satisfies Grammar;

const modes = () => import("./modes.ts");

export const COMPONENT: Command = {
  name: "component",
  about: "Run one component of the node, by the names that newer releases of Calico use.",
  style: "go",
  exitCodes: { 0: "done, or stopped by a signal", 1: "failed" },
  commands: [
    { ...FELIX, name: "felix" },
    command({
      name: "confd",
      about: "Generate the configuration of BIRD.",
      ...confdGrammar,
      load: async () => ({ run: (await modes()).confdComponent }),
    }),
    {
      name: "node",
      about: "Run one part of calico-node.",
      commands: [
        command({
          name: "startup",
          about: "Set name, addresses, pools and default settings of the node, once.",
          ...startupGrammar,
          load: async () => ({ run: (await modes()).startupComponent }),
        }),
        command({
          name: "allocate-tunnel-addrs",
          about: "Allocate the addresses of tunnels.",
          ...tunnelGrammar,
          load: async () => ({ run: (await modes()).tunnelComponent }),
        }),
        command({
          name: "init",
          about: "Mount bpffs and cgroup2.",
          ...initGrammar,
          exitCodes: {
            0: "mounted",
            2: "wrong usage, or bpffs cannot be mounted",
            3: "cgroup2 cannot be mounted",
            4: "the eBPF route to the API server is not supported",
          },
          load: async () => ({ run: (await modes()).initComponent }),
        }),
        command({
          name: "uninstall",
          about: "Remove Calico from this host, but not the datastore.",
          ...uninstallGrammar,
          load: async () => ({ run: (await modes()).uninstallComponent }),
        }),
        command({
          name: "health",
          about: "Probe Felix and BIRD.",
          ...probeGrammar,
          examples: [{ line: "--felix-live --bird-live", about: "The liveness probe of Kubernetes." }],
          load: async () => ({ run: (await modes()).healthComponent }),
        }),
        {
          ...command({
            name: "status",
            about: "Update CalicoNodeStatus resources, or show the status.",
            load: async () => ({ run: (await modes()).PLAIN_MODES["status-reporter"] }),
          }),
          commands: [
            command({
              name: "report",
              about: "Update CalicoNodeStatus resources.",
              load: async () => ({ run: (await modes()).PLAIN_MODES["status-reporter"] }),
            }),
            command({
              name: "show",
              about: "Print the state of the agent and of BGP sessions.",
              load: async () => ({ run: (await modes()).PLAIN_MODES["show-status"] }),
            }),
          ],
        },
        ...(
          [
            ["complete-startup", "Report that the network of the node is available."],
            ["monitor-addresses", "Watch the addresses of the host."],
            ["monitor-token", "Renew the credentials of the CNI plugin."],
            ["shutdown", "Report that the network of the node is not available."],
            ["hostpath-init", "Create directories of the host for the user of the node."],
            ["node-services", "Run everything except Felix, BIRD and its configuration."],
            ["status-reporter", "Update CalicoNodeStatus resources."],
            ["show-status", "Print the state of the agent and of BGP sessions."],
          ] as const
        ).map(([name, about]) =>
          command({ name, about, load: async () => ({ run: (await modes()).PLAIN_MODES[name] }) }),
        ),
        command({
          name: "version",
          about: "Print the version.",
          load: async () => ({ run: (await modes()).printVersion }),
        }),
      ],
    },
  ],
};

export const healthGrammar = {
  flags: {
    port: { type: "number", value: "PORT", min: 1, max: 65535, isRequired: true, about: "port of the program" },
    host: { type: "text", value: "HOST", default: "localhost", about: "host of the program" },
    type: {
      type: "text",
      value: "TYPE",
      values: ["readiness", "liveness"],
      default: "readiness",
      about: "what to check",
    },
    timeout: { type: "text", value: "DURATION", default: "5s", about: "timeout of the response" },
  },
} as const satisfies Grammar;

export const HEALTH: Command = command({
  name: "health",
  about: "Check the health of any program of Calico over HTTP, for probes.",
  ...healthGrammar,
  exitCodes: { 0: "healthy", 1: "not healthy" },
  examples: [{ line: "--port=9099 --type=liveness", about: "The liveness of Felix." }],
  load: () => import("./commands/health-command.ts"),
});
