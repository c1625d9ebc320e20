"""PyTorch's process: missing, hanging, dying, answering rubbish."""

from unittest import mock

from fakes import FolderTest

from peer import Peer
from stage import Failed, Skipped

ANSWERS = """
import json, os, sys, time
print("a warning of some library")
print(json.dumps({"torch": "2.0", "device": sys.argv[1]}), flush=True)
for line in sys.stdin:
    what = json.loads(line)["measure"]
    if what == "hang": time.sleep(1000)
    if what == "die": os._exit(3)
    print("rubbish", flush=True)
    print(json.dumps({"problem": "OutOfMemory: x"} if what == "fail" else {"eager": os.getpid()}), flush=True)
"""


class Peers(FolderTest):
    def peer(self, source):
        script = self.folder / "peer.py"
        script.write_text(source)
        peer = Peer(script, "cpu", self.folder / "log")
        self.addCleanup(peer.close)
        return peer

    def test_one_process_answers_all_questions(self):
        peer = self.peer(ANSWERS)
        first = peer.ask({"measure": "step"}, 20)
        self.assertEqual(peer.ask({"measure": "step"}, 20), first)
        self.assertEqual(peer.greeting()["device"], "cpu")

    def test_one_that_hangs_or_dies_costs_its_question_and_the_next_is_answered_by_another(self):
        peer = self.peer(ANSWERS)
        before = peer.ask({"measure": "step"}, 20)
        for what, phrase in (("hang", "no answer"), ("die", "ended")):
            with self.assertRaisesRegex(Failed, phrase):
                peer.ask({"measure": what}, 2)
            self.assertNotEqual(peer.ask({"measure": "step"}, 20), before)

    def test_a_question_that_fails_says_why(self):
        peer = self.peer(ANSWERS)
        with self.assertRaisesRegex(Failed, "OutOfMemory"):
            peer.ask({"measure": "fail"}, 20)
        self.assertIn("eager", peer.ask({"measure": "step"}, 20))

    def test_without_pytorch_every_question_is_skipped_at_once(self):
        for source, phrase in (
            ("import json; print(json.dumps({'problem': 'No module named torch'}))", "No module"),
            ("raise SystemExit(1)", "ended"),
        ):
            peer = self.peer(source)
            for _ in range(2):
                with self.assertRaisesRegex(Skipped, phrase):
                    peer.ask({"measure": "step"}, 20)

    def test_a_python_that_is_not_there_is_skipped(self):
        with mock.patch.dict("os.environ", LOCKSTEP_TORCH_PYTHON="/no/python"):
            with self.assertRaisesRegex(Skipped, "No such file"):
                self.peer(ANSWERS).ask({"measure": "step"}, 5)
