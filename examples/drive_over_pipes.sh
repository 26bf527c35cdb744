#!/bin/sh
# A shell script drives `toolspeak run` over a FIFO and a pipe, with grep and sed alone.
#
#     sh examples/drive_over_pipes.sh            # with the scripted model beside it
#     MODEL=openai:qwen3 sh examples/drive_over_pipes.sh
#
# It approves calls of `write` and refuses all others.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
model=${MODEL:-scripted:$here/scripts/drive_over_pipes.json}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkfifo "$folder/input"

${TOOLSPEAK:-toolspeak} run --json --input "$folder/input" --model "$model" --workspace "$folder" \
    --journal "$folder/.runs.db" 2>/dev/null |
{
    exec 3>"$folder/input"      # as long as it is open, the command waits for lines
    questions=2
    echo '{"task": "Write hello.txt."}' >&3
    while IFS= read -r line; do
        case $line in
        *'"type":"ApprovalRequested"'* | *'"type": "ApprovalRequested"'*)
            id=$(printf '%s\n' "$line" | grep -o '"call_id": *"[^"]*"' | head -n 1 | sed 's/.*: *"//; s/"$//')
            name=$(printf '%s\n' "$line" | grep -o '"name": *"[^"]*"' | head -n 1 | sed 's/.*: *"//; s/"$//')
            echo "? $name ($id)"
            if [ "$name" = write ]; then
                echo "{\"decide\": \"$id\", \"approved\": true}" >&3
            else
                echo "{\"decide\": \"$id\", \"approved\": false, \"reason\": \"only write\"}" >&3
            fi
            ;;
        *'"type":"RunFinished"'* | *'"type": "RunFinished"'*)
            printf '%s\n' "$line" | grep -o '"answer": *"[^"]*"'
            questions=$((questions - 1))
            if [ "$questions" -eq 0 ]; then
                exec 3>&-           # the command ends with its input
            else
                echo '{"task": "What is in it?"}' >&3
            fi
            ;;
        esac
    done
}
