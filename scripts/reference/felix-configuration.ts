// Generates docs/reference/felix-configuration.md from the declarations of the settings.
import { FELIX_SETTING_GROUPS, type FelixSetting } from "../../src/model/index.ts";
import { CONFIG_SOURCES } from "../../src/felix/config/engine.ts";
import { code, table } from "./markdown.ts";

const INTRODUCTION = `# Felix configuration

All settings of Felix. \`make reference\` generates this page from the declarations in \`src/model/felix-settings/\`.

A value comes from one of these sources, in order of precedence, lowest first: the default,
${Object.keys(CONFIG_SOURCES).join(", ")}.

- **Environment**: \`FELIX_\` and the name, in any letter case: \`FELIX_HEALTHPORT=9099\`.
- **File**: \`/etc/calico/felix.cfg\` (or \`--config-file\`), lines such as \`HealthPort = 9099\`; sections are ignored.
- **Datastore**: the column *Field* names the field of \`FelixConfiguration\`. \`default\` applies to all nodes, a
  resource with a \`nodeSelector\` to the nodes that it matches (if several match a node, the oldest one), \`node.<name>\`
  to one node. There, seconds and milliseconds are written as durations such as \`90s\`, lists as YAML lists. The
  annotation \`config.projectcalico.org/<Name>\` sets any setting by its name.
- An empty value is ignored. \`none\` sets the type's zero value, which may differ from the default. Settings
  marked *not none* do not accept it.
- An invalid value is reported and ignored; the valid value with the next lower precedence applies. (Calico uses the default then,
  so an invalid environment variable hides a valid value in the datastore.) If the value of a setting marked *fatal* is
  invalid, Felix does not start and tries again every second.
- Settings marked *local* are read only from the file and the environment. (For the datastore connection, Calico ignores
  the environment variables.)
- Felix restarts when a setting changes; this does not interrupt traffic. Settings marked *live* change without a restart.
- Settings with *no* in the column *Effect* are accepted, because Calico has them, and passed to an external dataplane
  driver. calico-ts itself ignores them.
`;

export function felixConfigurationPage(): string {
  const sections = Object.entries(FELIX_SETTING_GROUPS).map(([title, settings]) => {
    const rows = Object.entries<FelixSetting>(settings).map(([name, setting]) => row(name, setting));
    const headings = ["Name", "Field", "Type", "Default", "Effect", "Meaning", "Marks"];
    return `## ${title}\n\n${table(headings, rows)}`;
  });
  return `${INTRODUCTION}\n${sections.join("\n\n")}\n`;
}

function row(name: string, setting: FelixSetting): readonly string[] {
  const { type, field, source, meaning, noEffect } = setting;
  const marks = [
    ...(setting.isLocal ? ["local"] : []),
    ...(setting.isFatal ? ["fatal"] : []),
    ...(setting.rejectsNone ? ["not none"] : []),
    ...(setting.isLive ? ["live"] : []),
  ];
  return [
    code(name),
    source === undefined ? code(field ?? "") : `${source.kind} ${code(source.path)}`,
    type.name,
    code(setting.default),
    noEffect === undefined ? "yes" : `**no**: ${noEffect}`,
    meaning,
    marks.join(", "),
  ];
}
