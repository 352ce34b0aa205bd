"""Agreement of the own decoder with the installed Pillow's: Pillow may have been built with another
libjpeg."""

from __future__ import annotations

import base64

import numpy as np

from fastload.lazy.compressed import CompressedImage, Region
from fastload.lazy.pillow_code import Probe
from fastload.lazy.pixels import decoded_by_pillow, to_array

SIZE = (37, 29)
PROBES = tuple(
    (mode, base64.b85decode("".join(lines.split())))
    for mode, lines in (
        (  # 4:2:0
            "RGB",
            """
            |JeWF01!$>Nk#wx0RR9200961|JwjV00RO70|EjA0|NsD0|NvF2n7WM1O*BQ2L=cX3JeSj3JVJj4iXRz4iOFu3lJ6%5fc;@6%`B*7Z?^47!ni}6#v@*LjeN>1O)^
            I2?YfS6b%av6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6cqo!01*fP9RMW*0U`hb5di}c0sq7R82|wR0RRI40000000000000
            LF00adF|HJ?>5C8!K0tEvC0|)~E00000009C65d<Ls1qKo^2SHH?A`>!U6c-~TLUDnik&?0h!~hrp0RaF50000000000000001qcBH2LHqWE)f6$0tEpE0|@{C00
            000000330{{dC1|bm#5-~xc@Dn0oBP3CAfsw({@&DQY3<CiG0ucid06ze#a-Oo~+4XM59&Jl;z>w0wB&f#N08bM$9$?^q)ZRx`pQSHTr6eUJ2`YsssGFW<3E;@To
            KJZcsLgbhOLZj=pd{~6*jp(ZRR(4v)|-D=ZP0y8`^o&BQ>2oV?+Pby=6NyN!1=#u4ykD;X4B|qmFANpRg=e9OK2AL8Tyk>EyLiXWXFZ+ze_8eeT9~aQsDTB_gEMs
            Y@T}?!2N_AKWQ$QW*T|Adbing@Kx~9cp_|PY2;qtUjqf&yR4|`zIxp)GhrzZrxccfHc1M&1_gi-GI;Nf(=+vBS(@pmT5g%uC26sNw_)U!KtA9Ho(1~`s?^#0+MDi
            a_DLM^j{D&UF6WbwVYw<|ijpvrdH4K=fvFgw3Shc~EebM{69fIGOvoqc{0)dlGW8Eys<n!;^EZ?S8*rZyZ`dABCmR!Un=zUTAg89iV|c9Bm*x#1`s#miTI;oR<uo
            ojnwoW~#>!Mk2>=ix1c~{({dhQ*^*>VbeH~VWWv}cb<#Dx-a5on3Hyy{jjxYnB>WtEjw@NEsFhGK{a#K5v?rq-#+Lt=4tEvfc?g4fZ01~9h5#y2k;?KG*gKpOt@m
            ?<=frW7UchU*1(+tf)52<9OAmHF1po+6E%`3WvnKM|lt=88HTF{~blCv^9exo=40F#GolPuEC<$q%?0hl?;cBn+e9k&vgKiKnuKToM`8Z9qum4_Sz$+<ufN7LQK>
            ^a9fN>{o%lGPD{(v}s;1jK<i@D0Rs{(9Q&x|_zFhpFzFQ7$)#MmLAR`asgPmRy-~mSw=#0Q1Ka3ALRG%bk3wVJ;{1t75&tl0ob^BZ=bYwl*mJH%h^!_a)Die2x_G
            NavHp-^uc4Vt<*hnO9W8)2U85#uZ>qER_kh=jHj2|Je
            """,
        ),
        (  # 4:2:2
            "RGB",
            """
            |JeWF01!$>Nk#wx0RR9200961|JwjV00RO70|EjA0|NsD0|NvF2n7WM1O*BQ2L=cX3JeSj3JVJj4iXRz4iOFu3lJ6%5fc;@6%`B*7Z?^47!ni}6#v@*LjeN>1O)^
            I2?YfS6b%av6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6cqo!01*fP9RMW*0U-ba5di}c0sq7R82|tS00RI30000000000000
            072m}QN|HJ?>5C8!K0tEvC0|)~E00000009C65d<Ls1qKo^2SHH?A`>!U6c-~TLUDnik&?0h!~hxr00IL60RR9100000000001_uNM2m%TJ!~if6009C70|o>J0{
            {R3000000RjU61O*WWAwdTcQDJeRF@cfr6BHt`!SN%q;s4qI3<CiG0ucid06ze#a-Oo~+4XM59&Jl;z>w0wB&f#N08bM$9$?`=>Te^e&(fEv(vlLA1eHRRR87w_1
            n^{E&K0;mkh~Q5qRkE09M7*iMK00s#M`x2B|>u}-@gm=g?CN*SzP1nEVNRW2gFahz`+}2^Vr@8>>%O&q`G04Y3Awb-(}CiSHnf%iLsrhk$Zi73?A(oVG|U_<q|Uj
            -tK$$(iswNs*6l%hs}xyAI7@nuT0~s8j*?+rVFS-(4#3KFhAO4%z}QOz%hv2q^o%EwxW2)ClpgwNn5r&fj#nwk0R9>u9B&4q@nZ#o$5OaWg}{!%*0yLZ|e@-2h`8
            JpUKraNhwb7qIV8wlO3!NoA!@F_OVW6)tj!d;?TG5-@mk3W2(zZs3N8;cSfJ*=QzUE-DO8j^VaEUn+ZsTIHa@*vPf0HFf0IxlgE5*Ge1@}nXa03rs<thR+|_bb{<
            Jo1MUEM;9szfMWBpNPF&>K-MF~FzMj5`N}eQotolI~O7g#-apiux&pDT<dev2|RhOB(pg7xv_=|qP@_9HgxpxQztfdJg4ni!GhZ%5hl_x$vKiVr@cCMVJg~wA<PP
            I7MN{Im=0t7&jKR17`2NK?=>RwNys?dzJ{e*n3HnHvo;@#%sxc70!4;I|x)#jxtgZR~<zo&k23lRy4y2CA;o3Xy5g}&GKelsu4E4qc5Gg!2(*4GMJ(4qp8vobq=q
            c{HmlZUoRmT6~lzp<A9%pB!AR3c&y+lfpc?0Lbi)a9nA@{$c<;dEc?(=L8K0twlar+k~uqc;*V{d0|VXF_u4Un*EjiTx_ruW%%gdkzTVc)9I^0)lO|09LCT3*<OL
            3D+y15nG5+7t1|8B2UkCMrlUdr4_FjAVFEVDV@gmHt&S?rOvA=>VjN*fL(-u1gSDac;tULaP2jQ*{w^sfn#CQwYbKLs-X`|{AG)gez~4Laa($QOK8z)dt|IQ;3iG
            V0D?ZA?k{1^Gqk09qp2-X7%eGbT#!si6Mq2QM?d6}jM6Gpd6i6yl&0bo@((yGs%v}cQ8yZ8bKldEi*rrVuxWkCbLAf+g**~D<ncH1e3>zd>T?b=IOAz1z{Bk{rc?
            #8@)7^p
            """,
        ),
        (  # 4:4:4
            "RGB",
            """
            |JeWF01!$>Nk#wx0RR9200961|JwjV00RO70|EjA0|NsD0|NvF2n7WM1O*BQ2L=cX3JeSj3JVJj4iXRz4iOFu3lJ6%5fc;@6%`B*7Z?^47!ni}6#v@*LjeN>1O)^
            I2?YfS6b%av6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6ciK`6cqo!01*fP9RMW*0TBQK5di}c0sq7R7ytnQ00RI30000000000000
            OF1O*2F!~ii6009F61Ox;G2LS*8000000RjUN1R(_m5-|V=K~V@IGGP-!ae)*UBP5ZMp|StO02u)R0RaI40RR9100000000072nGcN3ID_ZGZ6p*0t5sE1p@*H00
            0000003IAp!#gF#rWYQ3hdgffA9SvG5eZ(FYSEBQio#;qm|401N{G00I#M5dc2`RN*}3!?Eh!3_RMF<AEWifJsq}FaVvVW;?;+b)o$;t>HMnwys%7RY_$30HMOQ*
            4RSg-W;o@%gkmK9r^2L(aPJHkNBIw>ap~t>U5-pq=6++r4<u%yumve7w^M{L7vFXVTM$arFyav-Pw9#N2TF9yuzfJVHez8FX!04CET~=Wpj_Pve8Oh9}zxl0|aT4
            ze9K*K?jA=m`kFhGL69l<F?*`Qxw+=<@FgPgD!Q`d)ucwDRe=L_EP1BA(xw{t9_S0MPCgUf+ogvoyG0%*l{Oua24|+GQtPZMfWB8p$A01I+c0U6!93Mj06r<cYg^
            Edbv$;)r`o+2vY^rA!t#QkeDCZWXytnzQTW<l+5v@a2SS(^JMvd99&hG%!~Px0O$$!0Xiq+0z3;eV!2ACx{`;`5_PEPEtHKagEJ9pO~1}QyYbB}9&?vPOwOUm^55
            In3tUf~O3Z1D1cmI2<V}K>+0z!>hs@8+pV`$qNhwaSqIC`Da~&)Xd-RBgETHgw^EOa*`?0$B<iXI*!#S6b#AYI{*I#r6RCQi>S-YI5<-R)IEi+*$5T_KDfi_7BxC
            RA)5i)k`!X8I9tB7I|#|c8-XiBO*+@+sfd8+u<qcDKQE+4o+iLoeE-1K3MrYGXYvlYuuwB0kRO4DNlPJ_8BfPBCX`wR34*^lY%98_j>Qv#;vs|^saEcnLD%;x5Eg
            qgs@eOC6})y=}&ndcJm4_d0Vin8-Jlm{Ddp3!fhJDtx1RU91zxrP~Vk~#$JyIR8Cv8jiL<xeIf5O;UKeqU`cwa;qh%4l45H8kr}jg+X65&$4X2@~q;@3G+rJ{k0x
            1dw5NzM3b*RppH*5Y*I)Xun_~77*O(+BSqLrPBqx&&<3ZCsm;sYx)TExZ1~<8;f<Dj-$=C+;ezFM4aMcW-c~7gZTozxnPGRq@Pn1X04%Jwsl=YD=MDr#$ouScQCO
            gYZjHd+TlxD6hKl|W=Bt$&Hn)8@mNa8vV6NPh|-4vhM<o7Y~4Y^M4D`}n2076>W}`l8xCa++XTZhv$$X2%Yb4IZk;L-F$Yb=rVsi%@eO9xoLMV5idlr20Nqe;vbz
            t%r*Ai+p!!o494;)%S<{f&MaW?I*H&^T4t4USgt(uTS{3F5k`F<#8&20fI7gRR402!-N=2&!vv$PuQ#U#@VlttK!)xuk9dJ*_b4Dpf+oct+7$8Aexhb7S_crUrhs
            M-WBg!L-!W<J}pk1+0W^tMRC{Onv3%Y2doxU7Lvo1ARS5y+?+XCz)03}J1Bevu3#Cb?RX0;*z03aV=PBBvHq)3E;3#kil=|uPCwiezWQra?FUePNKI0=(-fFO@=H
            rKG<h76XvbkYQ6L`n0Tm9`7Gh{kIGh9VIIbwT8wZW9^VQoYg4mZ*#tl(4PHCL{^JU~VIS<ui!#iZPY_K!f<7vZc0j>5V@ORn4z4MKq{{fbV}zt`C`9H!|HT2A9m2
            JtNTJPQ;D(J5BqZ=3$KXWK`4q5E6iq=?Z(M8Q{v~7<@3Ycf0)jCO`k#
            """,
        ),
        (  # grey
            "L",
            """
            |JeWF01!$>Nk#wx0RR9200961|JwjV00RO70|EjA0|NsD0|NvF2n7WM1O*BQ2L=cX3JeSj3JVJj4iXRz4iOFu3lJ6%5fc;@6%`B*7Z?^47!ni}6#u{g3kU!m03`t
            d5di<h02lxP0RRI40000000000000082LuHM|HJ?>5C8!K0t5sE1P1{C00000009C65d<Lx1`;s<2SHH?A~InULUDl<7b7H*lA*Ex+5iXv0RR9$094^T<-@V+-3&
            b1mg9jTrGQCMjW7V6re-_A;y>bV1FFZ;m#NZ{5|RX!LX=cZ&hrH9WM97$?pyM*xyRU9Xr(R>h@Ulqf;7qBp}Y^EgT?zPa>EeI&C}Js%b%jJhKs=yV>(Xa_V?^K>c
            (VZgeijR5VR=DNK6myGG;+O-(VxavqmeFs#~cjeE}z0j)K`p(x@{r7PQ;^;@gn<nfa6ZI;Tk`Db^HDp}g*6rGf8$k%gPN%8py(t<uvr5|IjVNoW&fkgI@TSOF6!Z
            oF+VKNdBZu3B}b>77zmn;05&9m!M!<^XrtU!XkVULosMR<TxIX7YgJZWG!q^apdf;cK4N%aqW#>S}4$ryD6zAS3`lh!Q8&*WY8oZ!_~R2g%iFMjHNtJuWt}<_6;3
            X5*;yZMPg|ABtCV3le6rX<MzX6t$s51tn%=boq?m{!bTd6Aa4E;eUfJ0f;%ebf`qc9XAq~Kj`nqy0eiubFY;wCB*!y(62Bgka`V>+IG3=!9N|%7^NF-lvcc8fdyv
            drga<K+piJq%Z*l5)daZqz`F?m2~uQ;?YR5!w($Cv(UQ{kiCA&KOq-Me1bcb5y@vc}WlHx)GFqZAT2jKdAefLQ{eifR{{WWeTcu#q`I6_PdK@X(k-q0?zjNHr|Je
            """,
        ),
    )
)
"""(mode, file): colours at 4:2:0, 4:2:2 and 4:4:4, and grey."""


@Probe
def decoder_agrees() -> bool:
    """Returns True if Pillow's libjpeg and the own decoder make equal pixels of files of several
    samplings, colour and grey."""
    return all(_agrees(mode, data) for mode, data in PROBES)


def _agrees(mode: str, data: bytes) -> bool:
    if CompressedImage.known(data, mode) is None:
        return False
    ours = CompressedImage(data, SIZE, mode).pixels(Region(0, 0, *SIZE))
    return bool(np.array_equal(ours, to_array(decoded_by_pillow(data, SIZE, mode))))
