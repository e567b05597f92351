"""The words that a generated model's tokenizer is trained on, with made-up Zipf frequencies."""

from __future__ import annotations

_STEMS = """
the of and to in a is that for it as was with be by on not he this are or his from at which but
have an had they you were their one all we can her has there been if more when will would who so
no out up said what its about than into them only other new some could time these two may then
do first any my now such like our over man me even most made after also did many before must
through back years where much your way well down should because each just those people too
little state good very make world still own see men work long get here between both life being
under never day same another know while last might us great old year off come since against go
came right used take three small set own place found number part general end high point give
water form large order line house group sound word case fact eye week company system program
question government number night area money story month lot study book job business issue side
kind head service friend father power hour game member law car city community name president
team minute idea body information nothing ago lead social whether continue change watch follow
stop create speak read allow add spend grow open walk win offer remember love consider appear
buy wait serve die send expect build stay fall cut reach kill remain suggest raise pass sell
require report decide pull capital country france germany italy spain england china japan india
europe africa america paris london berlin rome madrid tokyo language french english music art
history science nature river mountain sea ocean forest field garden tree flower animal bird fish
horse dog cat engine memory weight cache token model server request answer cold start warm
process page kernel device host image layer attention hidden snapshot restore checkpoint capture
resume machine processor network address file folder byte record digest store pack index plan
step run journal driver container unit worker rank matrix vector block column row thread queue
batch sequence prompt sample greedy probability temperature length limit error message reason
remedy state health metric port stream signal clock second fast slow quick simple complex exact
equal different similar possible certain clear early late strong weak full empty deep wide
narrow short tall young ancient modern common rare public private local foreign national human
special main real free single double half whole white black red green blue yellow bright dark
light heavy hot dry wet soft hard sweet sharp smooth rough clean dirty rich poor happy sad angry
calm proud brave kind cruel honest wise foolish strange familiar morning evening summer winter
spring autumn north south east west left center middle top bottom front inside outside above
below near far north letter sentence paper pen table chair door window wall floor roof room
kitchen street road bridge station train ship boat plane wheel road market shop price cost value
trade bank gold silver iron stone wood glass steel oil gas coal fire air earth sun moon star sky
cloud rain snow wind storm heat ice one two three four five six seven eight nine ten hundred
thousand million half quarter zero first second third doctor nurse teacher student school
college university lesson class test result theory method experiment measure figure table chart
example problem solution rule reason cause effect purpose goal choice chance risk danger safety
peace war army soldier battle victory defeat king queen prince empire republic party vote leader
citizen right duty court judge crime police prison truth lie secret promise bread butter cheese
meat egg milk sugar salt rice apple orange potato soup tea coffee wine beer dinner breakfast
lunch supper hunger thirst taste smell touch sight hearing voice silence noise song dance
picture paint color shape circle square triangle angle edge surface space distance speed
direction motion force energy pressure mass balance weight scale unit degree level rate amount
total average difference product sum ratio function equation variable constant proof theorem
logic set element member quick brown fox jump lazy over hello good bye thank please yes maybe
always often sometimes seldom soon again together alone almost already perhaps quite rather
enough instead therefore however although unless until during within without among across along
around behind beside beyond toward upon
""".split()  # noqa: SIM905 - nobody edits a list of a thousand quoted words
_ENDINGS = ("", "s", "ed", "ing", "er", "ly", "ness", "ment", "able", "ful", "less", "ion", "al")
_SINGLES = (*"0123456789.,;:!?()-'\"/\n", "  ", "\n\n", "...", "'s", "n't", ", ", "19", "20", "100")


def word_counts() -> dict[str, int]:
    """Pre-token -> how often it occurs; words carry their leading blank."""
    counts: dict[str, int] = {}
    stems = list(dict.fromkeys(_STEMS))
    for rank, stem in enumerate(stems, 1):
        for place, ending in enumerate(_ENDINGS):
            count = 1_000_000 // (rank * (1 + 3 * place))
            counts[f" {stem}{ending}"] = counts.get(f" {stem}{ending}", 0) + count
        counts[f" {stem.capitalize()}"] = 200_000 // rank
        counts[stem.capitalize()] = 300_000 // rank
    for rank, single in enumerate(_SINGLES, 1):
        counts[single] = 500_000 // rank
    return counts
