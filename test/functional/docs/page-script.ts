// Turns a page of the documentation into one shell script: its `sh` blocks in order, and before them the files that `yaml` blocks
// with a first line `# file: NAME` define. After each command the script reports its exit code, and it ends after an exit
// code that the page does not announce: `# denied` or `# exit code N` at the end of a command.
import { codeBlocks } from "../../../scripts/documents/markdown.ts";
import { pageCommands } from "../../../scripts/documents/page-commands.ts";

const END_OF_FILE = "END_OF_PAGE_FILE";

/** The script reports on file descriptor 3: one line `LINE EXIT-CODE` for each command. */
export function pageScript(page: string): string {
  const files = codeBlocks(page).flatMap(({ language, text, line }) => {
    const [, name] = /^# file: (\S+)\n/.exec(text) ?? [];
    return language !== "yaml" || name === undefined
      ? []
      : [{ line, text: `cat > '${name}' <<'${END_OF_FILE}'\n${text}\n${END_OF_FILE}` }];
  });
  const commands = pageCommands(page).map(({ line, text, exitCode }) => ({
    line,
    text: [
      `echo '== line ${line}'`,
      text,
      `code=$?; echo "${line} $code" >&3; [ "$code" = ${exitCode} ] || exit 99`,
    ].join("\n"),
  }));
  return [...files, ...commands]
    .toSorted((a, b) => a.line - b.line)
    .map(({ text }) => text)
    .join("\n");
}
