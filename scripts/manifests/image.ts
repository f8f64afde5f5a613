// The image of every role, named as `make image` names it. Container runtimes pull from the host that a name begins with, and
// complete a name without one with a public registry. `localhost` is never such a registry, and nodes do not pull at all.
import { readFileSync } from "node:fs";
import { join } from "node:path";

const { version } = JSON.parse(readFileSync(join(import.meta.dir, "../../package.json"), "utf8")) as {
  version: string;
};

export const IMAGE = `localhost/calico-ts/calico:v${version}`;

/** These two lines of every container are what docs/kubernetes.md replaces for an image in a registry. */
export const FROM_IMAGE = { image: IMAGE, imagePullPolicy: "Never" } as const;
