// Writes docs/felix-configuration.md from the declarations of the agent's settings.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { documentParameters } from "../src/felix/config/document.ts";

const docs = join(import.meta.dir, "../docs");
mkdirSync(docs, { recursive: true });
writeFileSync(join(docs, "felix-configuration.md"), documentParameters());
console.log("felix-docs: wrote docs/felix-configuration.md");
