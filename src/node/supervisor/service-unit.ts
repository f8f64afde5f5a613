// Renders the systemd unit and the environment file that run calico-node as a service of the host.

export interface ServiceUnit {
  readonly executable: string;
  readonly environmentFile: string;
}

export const UNIT_NAME = "calico-node.service";
export const UNIT_PATH = `/etc/systemd/system/${UNIT_NAME}`;
export const ENVIRONMENT_FILE = "/etc/calico/calico-node.env";

/** `KillMode=mixed` sends SIGTERM only to calico-node, which stops BIRD with SIGKILL, so that peers keep the node's routes. */
export function serviceUnit({ executable, environmentFile }: ServiceUnit): string {
  return `[Unit]
Description=Calico node: routes and network policy for the workloads of this host
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
EnvironmentFile=-${environmentFile}
ExecStart=${executable}
KillMode=mixed
TimeoutStopSec=20
Restart=always
RestartSec=1
LimitNOFILE=65536
OOMScoreAdjust=-900
RuntimeDirectory=calico
RuntimeDirectoryPreserve=yes
StateDirectory=calico
LogsDirectory=calico
ConfigurationDirectory=calico

[Install]
WantedBy=multi-user.target
`;
}

/** Names of variables whose values must not be printed. */
const SECRET = /PASSWORD|TOKEN/;

/** Like `environmentText`, with secrets hidden. */
export function shownEnvironment(env: Readonly<Record<string, string | undefined>>): string {
  const shown = Object.entries(env).map(([name, value]) => [name, value && SECRET.test(name) ? "<secret>" : value]);
  return environmentText(Object.fromEntries(shown) as Record<string, string | undefined>);
}

/** One variable per line, quoted for systemd's EnvironmentFile=. */
export function environmentText(env: Readonly<Record<string, string | undefined>>): string {
  return Object.entries(env)
    .filter((entry): entry is [string, string] => entry[1] !== undefined && entry[1] !== "")
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => `${name}="${value.replaceAll(/["\\$`]/g, "\\$&")}"\n`)
    .join("");
}
