// Writes docs/felix-configuration.md from the declarations of Felix's settings.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { documentSettings } from "../src/felix/config/document.ts";

const docs = join(import.meta.dir, "../docs");
mkdirSync(docs, { recursive: true });
writeFileSync(join(docs, "felix-configuration.md"), documentSettings());
console.log("felix-docs: wrote docs/felix-configuration.md");
