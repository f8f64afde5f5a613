// Defines the image of all containers, with the name that `make image` gives it. Container runtimes pull from the host at the
// beginning of a name, or from a public registry if there is none. `localhost` is never a public registry, and nodes do not
// pull this image at all.
import { readFileSync } from "node:fs";
import { join } from "node:path";

const { version } = JSON.parse(readFileSync(join(import.meta.dir, "../../package.json"), "utf8")) as {
  version: string;
};

export const IMAGE = `localhost/calico-ts/calico:v${version}`;

/** For an image in a registry, the command in docs/kubernetes.md replaces these two lines of every container. */
export const FROM_IMAGE = { image: IMAGE, imagePullPolicy: "Never" } as const;
