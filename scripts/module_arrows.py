import os,re,subprocess,collections,sys
def module(f):
    p=f.split('/')
    if p[0]!='perseus' or len(p)<3: return None
    return p[1] if p[1] in('base','cli') else p[2]
A=collections.defaultdict(lambda: collections.Counter()); T=collections.defaultdict(lambda: collections.Counter()); why={}
for f in subprocess.check_output(['git','ls-files','perseus'],text=True).split():
    if not re.search(r'\.(h|cc)$',f) or not os.path.exists(f): continue
    m=module(f)
    for i in re.findall(r'#include "(perseus/[^"]+)"',open(f).read()):
        n=module(i)
        test=re.search(r'_test\.cc|fixture|_test_|test_',os.path.basename(f))
        if n!=m:
            (T if test else A)[m][n]+=1
            why.setdefault((m,n,bool(test)),[]).append((os.path.basename(f),os.path.basename(i)))
for m in A: print(m,'->',' '.join(f'{n}({c})' for n,c in A[m].items()), '| tests:',' '.join(n for n in T[m] if n not in A[m]))
for a in sys.argv[1:]:
    x,y=a.split(':'); print(a,why.get((x,y,False)))
