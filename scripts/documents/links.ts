// Finds links and anchors of the documentation that lead nowhere, and pages that docs/README.md does not lead to. Addresses on
// other hosts are not checked.
import { existsSync, readFileSync, statSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { anchors, links } from "./markdown.ts";
import { documentPaths } from "./site.ts";

interface Target {
  /** Path in the repository. */
  readonly path: string;
  readonly anchor: string | undefined;
}

function resolveLink(from: string, link: string): Target | undefined {
  if (/^[a-z][a-z+.-]*:/i.test(link)) return undefined;
  const [file = "", anchor] = link.split("#");
  return { path: file === "" ? from : normalize(join(dirname(from), decodeURIComponent(file))), anchor };
}

/** Returns one sentence for each link that leads nowhere. */
export function findDeadLinks(root: string): readonly string[] {
  const texts = new Map(documentPaths(root).map((path) => [path, readFileSync(join(root, path), "utf8")]));
  const faults: string[] = [];
  for (const [path, text] of texts)
    for (const { target: link, line } of links(text)) {
      const target = resolveLink(path, link);
      if (target === undefined) continue;
      const fault = findFault(root, target, texts);
      if (fault !== undefined) faults.push(`${path}:${line}: ${link}: ${fault}`);
    }
  return faults;
}

function findFault(root: string, target: Target, texts: ReadonlyMap<string, string>): string | undefined {
  const { path, anchor } = target;
  if (path.startsWith("..")) return "is outside the repository";
  if (!existsSync(join(root, path))) return "there is no such file";
  if (anchor === undefined) return undefined;
  const page = statSync(join(root, path)).isDirectory() ? join(path, "README.md") : path;
  const text = texts.get(page);
  if (text === undefined) return `${page} is not a page of the documentation`;
  return anchors(text).has(anchor) ? undefined : `${page} has no heading with this anchor`;
}

/** Returns the pages below docs/ that no chain of links from docs/README.md reaches. */
export function findUnreachablePages(root: string): readonly string[] {
  const pages = new Set(documentPaths(root));
  const reached = new Set<string>();
  const queue = ["docs/README.md"];
  for (let path = queue.pop(); path !== undefined; path = queue.pop()) {
    if (!pages.has(path) || reached.has(path)) continue;
    reached.add(path);
    for (const { target } of links(readFileSync(join(root, path), "utf8"))) {
      const found = resolveLink(path, target)?.path;
      if (found !== undefined) queue.push(found, join(found, "README.md"));
    }
  }
  return [...pages].filter((path) => path.startsWith("docs/") && !reached.has(path));
}
