// Declares the command lines of the CNI plugins, the CNI service and the installation. A container runtime calls a plugin
// without arguments, with CNI_COMMAND in the environment; for such calls this file is not loaded.
import { type Command, commandsWith, type Grammar } from "../lib/command-line/command.ts";

const command = commandsWith({});

const VERSION = { v: { type: "switch", about: "print the version" } } as const;
const ABOUT_RUNTIMES =
  "A container runtime calls the plugin with CNI_COMMAND in the environment and its configuration on standard input.";

export const ipamPluginGrammar = {
  flags: {
    ...VERSION,
    upgrade: { type: "switch", about: "move the addresses of host-local IPAM to the IPAM of Calico" },
  },
} as const satisfies Grammar;

export const IPAM_PLUGIN: Command = {
  ...command({
    name: "calico-ipam",
    about: "The IPAM plugin of Calico for container runtimes (CNI).",
    details: ABOUT_RUNTIMES,
    ...ipamPluginGrammar,
    exitCodes: { 0: "done", 1: "failed" },
    load: async () => ({ run: (await import("./plugin-flags.ts")).runIpamFlags }),
  }),
  style: "go",
};

export const networkPluginGrammar = {
  flags: {
    ...VERSION,
    t: { type: "switch", about: "check that the datastore of the configuration on standard input is ready" },
  },
} as const satisfies Grammar;

/** `calico` with CNI_COMMAND in its environment; without it, `calico` has sub-commands. */
export const NETWORK_PLUGIN: Command = {
  ...command({
    name: "calico",
    about: "The network plugin of Calico for container runtimes (CNI).",
    details: ABOUT_RUNTIMES,
    ...networkPluginGrammar,
    exitCodes: { 0: "done", 1: "failed" },
    load: async () => ({ run: (await import("./plugin-flags.ts")).runNetworkFlags }),
  }),
  style: "go",
};

export const serviceGrammar = {
  flags: {
    socket: {
      type: "text",
      value: "PATH",
      defaultText: "/var/run/calico/cni.sock",
      about: "path of the Unix socket",
    },
  },
} as const satisfies Grammar;

export const CNI_SERVICE: Command = command({
  name: "cni-service",
  about: "Run the CNI service without the node agent, for tests and benchmarks.",
  ...serviceGrammar,
  exitCodes: { 0: "stopped by a signal", 1: "failed" },
  load: () => import("./service/service-command.ts"),
});

export const INSTALL: Command = command({
  name: "calico-install",
  about: "Install the CNI plugin, its configuration and its credentials on the host that is mounted under /host.",
  details: `Settings are environment variables:
  CNI_NET_DIR: directory of the configuration on the host (/etc/cni/net.d)
  CNI_CONF_NAME: name of the configuration file (10-calico.conflist)
  CNI_NETWORK_CONFIG: the configuration, with __NAME__ placeholders
  CNI_NETWORK_CONFIG_FILE: file with the configuration
  UPDATE_CNI_BINARIES: false keeps programs that exist
  SKIP_CNI_BINARIES: plugins that are not installed, separated by commas
  SLEEP: false ends the program after the installation; otherwise it continues to renew credentials`,
  exitCodes: { 0: "installed", 1: "failed" },
  extraArgumentHint: () => "Settings are environment variables.",
  load: () => import("./install/install.ts"),
});
