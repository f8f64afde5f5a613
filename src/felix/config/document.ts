// The page that documents every setting, made from their declarations.
import { CONFIG_SOURCES } from "./engine.ts";
import type { Parameter } from "./parameter.ts";
import { PARAMETER_GROUPS } from "./parameters.ts";

export function documentParameters(): string {
  const lines = [
    "# Felix configuration",
    "",
    "Every setting of the node agent. Made by `make felix-docs` from the declarations in `src/felix/config/parameters/`.",
    "",
    "A setting comes from one of these places, each over the ones before it: its default,",
    `${Object.keys(CONFIG_SOURCES).join(", ")}.`,
    "",
    "- **Environment**: `FELIX_` and the name, in any case: `FELIX_HEALTHPORT=9099`.",
    "- **File**: `/etc/calico/felix.cfg` (or `--config-file`), lines `HealthPort = 9099`; sections are ignored.",
    "- **Datastore**: `FelixConfiguration` `default` for all hosts, one with a `nodeSelector` for those it selects (the",
    "  oldest that matches), `node.<name>` for one. The field is the name beginning in small letters, without `Secs` or",
    "  `Millis`, durations written `90s`. Annotation `config.projectcalico.org/<Name>` sets any setting by name.",
    "- An empty value says nothing. `none` is the type's zero, often another thing than the default.",
    "- A bad value is reported and passed over: a good one in an earlier place counts. (The original falls back to the",
    "  default there, so that a bad variable hides a good value in the datastore.) Where a setting is marked *fatal* the",
    "  agent waits, and tries again every second, until the value is right.",
    "- Settings marked *local* come from the file or the environment only. Those for the datastore connection reach the",
    "  datastore client from both. (In the original variables do not.)",
    "- A change restarts the agent, which costs no packet, unless the setting is marked *live*.",
  ];
  for (const [title, parameters] of Object.entries(PARAMETER_GROUPS)) {
    lines.push("", `## ${title}`, "", "| Name | Type | Default | Meaning | |", "|---|---|---|---|---|");
    for (const [name, parameter] of Object.entries(parameters)) lines.push(row(name, parameter));
  }
  return `${lines.join("\n")}\n`;
}

function row(name: string, parameter: Parameter<unknown>): string {
  const marks = [
    ...(parameter.isLocal ? ["local"] : []),
    ...(parameter.isFatal ? ["fatal"] : []),
    ...(parameter.refusesNone ? ["not none"] : []),
    ...(parameter.isLive ? ["live"] : []),
  ];
  const cells = [
    `\`${name}\``,
    parameter.type.name,
    parameter.fallback === "" ? "" : `\`${parameter.fallback}\``,
    parameter.meaning,
    marks.join(", "),
  ];
  return `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
}
