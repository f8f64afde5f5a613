// Generates docs/reference/environment.md from the tables that the programs declare.
import { CALICOCTL_VARIABLES } from "../../src/calicoctl/environment-variables.ts";
import { INSTALL_VARIABLES, PLUGIN_VARIABLES } from "../../src/cni/environment-variables.ts";
import { CONTROLLERS_VARIABLES } from "../../src/controllers/environment-variables.ts";
import { DATASTORE_VARIABLES } from "../../src/datastore/environment-variables.ts";
import { LAB_VARIABLES } from "../../src/lab/environment-variables.ts";
import type { EnvironmentTable } from "../../src/lib/environment-table.ts";
import { NODE_VARIABLES } from "../../src/node/environment-variables.ts";
import { resolveConfig } from "../../src/typha/config.ts";
import { TYPHA_CLIENT_VARIABLES, TYPHA_SETTINGS, TYPHA_VARIABLES } from "../../src/typha/environment-variables.ts";
import { code, table } from "./markdown.ts";

const FELIX_VARIABLES: EnvironmentTable = {
  FELIX_EARLYLOGSEVERITYSCREEN: {
    meaning: "Log severity until the settings are read. If unset: FELIX_LOGSEVERITYSCREEN.",
    default: "ERROR",
  },
  CALICO_NODENAME_FILE: { meaning: "File with the name of the node.", default: "/var/lib/calico/nodename" },
  HOSTNAME: { meaning: "Name of the node, if the operating system has none." },
  PATH: { meaning: "Folders of an external dataplane driver, iptables and ipset." },
};

interface Section {
  readonly title: string;
  readonly text: string;
  readonly variables: EnvironmentTable;
}

const SECTIONS: readonly Section[] = [
  {
    title: "Datastore",
    text: "All programs read these variables. Each may have the prefix `CALICO_`, as in `CALICO_ETCD_ENDPOINTS`; the prefixed form takes precedence. A file that `calicoctl --config` names replaces all of them.",
    variables: DATASTORE_VARIABLES,
  },
  { title: "calico-node", text: "See also [the node](../node.md).", variables: NODE_VARIABLES },
  {
    title: "Felix",
    text: "Each setting of [Felix](felix-configuration.md) is also the variable `FELIX_<Name>`, in any letter case, such as `FELIX_HEALTHPORT`. Besides these:",
    variables: FELIX_VARIABLES,
  },
  {
    title: "calico-kube-controllers",
    text: "A variable takes precedence over the field of [KubeControllersConfiguration](resources/kubecontrollersconfiguration.md). An invalid value ends the program with exit code 1.",
    variables: CONTROLLERS_VARIABLES,
  },
  { title: "Typha", text: "Besides the [settings of Typha](#typha-settings):", variables: TYPHA_VARIABLES },
  { title: "CNI plugins", text: "The container runtime sets the `CNI_` variables.", variables: PLUGIN_VARIABLES },
  {
    title: "calico-install",
    text: "*Placeholder* means: the value replaces `__NAME__` in the CNI configuration.",
    variables: INSTALL_VARIABLES,
  },
  { title: "calicoctl", text: "Besides the variables of the datastore:", variables: CALICOCTL_VARIABLES },
  { title: "calico lab", text: "", variables: LAB_VARIABLES },
];

/** Names of all variables that the page documents. */
export const documentedVariables: ReadonlySet<string> = new Set([
  ...SECTIONS.flatMap(({ variables }) => Object.keys(variables)),
  ...Object.keys(TYPHA_CLIENT_VARIABLES),
]);

export function environmentPage(): string {
  return `${[
    "# Environment variables",
    "`make reference` generates this page from the tables of variables in `src/*/environment-variables.ts`.",
    ...SECTIONS.flatMap(({ title, text, variables }) => [`## ${title}`, text, variableTable(variables)]),
    "## Clients of Typha",
    "Felix reads `FELIX_TYPHA<name>`; the BGP service `CONFD_TYPHA<name>`, then `FELIX_TYPHA<name>`, then `CALICO_TYPHA<name>`; the other parts of calico-node `FELIX_TYPHA<name>`, then `CALICO_TYPHA<name>`.",
    variableTable(TYPHA_CLIENT_VARIABLES),
    "## Typha settings",
    "Each is the variable `TYPHA_<Name>`, in any letter case, or a line `Name = value` in `/etc/calico/typha.cfg`. Variables take precedence. An invalid value is logged, and the default is used.",
    typhaSettings(),
  ]
    .filter((part) => part !== "")
    .join("\n\n")}\n`;
}

const variableTable = (variables: EnvironmentTable): string =>
  table(
    ["Variable", "Default", "Meaning"],
    Object.entries(variables).map(([name, { meaning, default: value = "" }]) => [
      code(name),
      value.startsWith("the ") || value.startsWith("all ") ? value : code(value),
      meaning,
    ]),
  );

function typhaSettings(): string {
  const { config } = resolveConfig({});
  return table(
    ["Name", "Default", "Meaning"],
    Object.entries(TYPHA_SETTINGS).map(([name, meaning]) => {
      const value = config[name as keyof typeof config];
      // Durations are parsed to milliseconds; the setting itself is in seconds.
      const isDuration = /Secs$|GracePeriod$/.test(name) && typeof value === "number";
      return [code(name), code(isDuration ? `${value / 1000} s` : String(value)), meaning];
    }),
  );
}
